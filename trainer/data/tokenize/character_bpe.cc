// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/character_bpe.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/printable.h"

namespace hpctl {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // ▁
constexpr size_t kShownOfCharacter = 8;

// Of valid UTF-8.
size_t character_size(char first) {
  const auto byte = static_cast<uint8_t>(first);
  if (byte < 0x80) return 1;
  if (byte < 0xe0) return 2;
  return byte < 0xf0 ? 3 : 4;
}

class CharacterTokenizer : public Tokenizer {
 public:
  explicit CharacterTokenizer(CharacterParts parts)
      : parts_(std::move(parts)),
        text_(std::move(parts_.text)),
        bpe_(no_bytes(), parts_.merges, {}) {
    for (const auto& [text, id] : parts_.tokens) {
      std::string shown = text;
      replace_all(shown, kSpaceMark, " ");
      texts_.emplace(id, std::move(shown));
    }
    if (parts_.bytes) {
      for (size_t b = 0; b < parts_.bytes->size(); ++b) {
        texts_.insert_or_assign(parts_.bytes->at(b), std::string(1, static_cast<char>(b)));
      }
    }
    for (const AddedToken& token : text_.added()) texts_.insert_or_assign(token.id, token.text);
  }

  uint64_t vocabulary() const override { return parts_.vocabulary; }
  int32_t end_of_document() const override {
    for (const char* name : {"</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "[EOS]"}) {
      if (const int32_t id = added_token(name); id >= 0) return id;
    }
    return -1;
  }
  int32_t added_token(std::string_view name) const final { return text_.added_token(name); }
  std::unique_ptr<Encoder> make_encoder() const override;
  // Where spaces were lost, one stands between two tokens.
  Result<std::string> decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      const auto found = texts_.find(id);
      if (found == texts_.end()) return no_token(id);
      if (!text.empty() && text_.loses_text()) text += ' ';
      text += found->second;
    }
    return text;
  }

 private:
  friend class CharacterEncoder;

  static std::array<int32_t, 256> no_bytes() {
    std::array<int32_t, 256> bytes{};
    bytes.fill(-1);
    return bytes;
  }

  CharacterParts parts_;  // without its text
  RuledText text_;
  std::unordered_map<int32_t, std::string> texts_;
  BpeModel bpe_;
};

class CharacterEncoder : public Encoder {
 public:
  explicit CharacterEncoder(const CharacterTokenizer& tokenizer)
      : parts_(tokenizer.parts_), cutter_(tokenizer.text_), bpe_(tokenizer.bpe_) {}

  Outcome encode(std::string_view text, std::vector<int32_t>& ids) override {
    return cutter_.encode(text, ids, [&](std::string_view piece, std::vector<int32_t>& of_piece) {
      return encode_piece(piece, of_piece);
    });
  }

 private:
  Outcome encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
    if (parts_.ignore_merges) {
      if (const auto whole = parts_.tokens.find(piece); whole != parts_.tokens.end()) {
        ids.push_back(whole->second);
        return Ok{};
      }
    }
    const size_t first = ids.size();
    bool was_unknown = false;
    for (size_t at = 0; at < piece.size();) {
      const std::string_view character = piece.substr(at, character_size(piece[at]));
      at += character.size();
      const auto token = parts_.tokens.find(character);
      const bool is_unknown = token == parts_.tokens.end();
      if (!is_unknown) {
        ids.push_back(token->second);
      } else {
        HP_TRY(encode_unknown(character, was_unknown, ids));
      }
      was_unknown = is_unknown;
    }
    bpe_.join(ids, first);
    return Ok{};
  }

  Outcome encode_unknown(std::string_view character, bool was_unknown, std::vector<int32_t>& ids) {
    if (parts_.bytes) {
      for (const char byte : character) ids.push_back(parts_.bytes->at(static_cast<uint8_t>(byte)));
      return Ok{};
    }
    if (!parts_.unknown) {
      return Error{ErrorCode::kInvalidArgument, "the tokenizer has no token for \"" +
                                                    printable_line(character, kShownOfCharacter) +
                                                    "\", and no unk_token"};
    }
    if (!was_unknown || !parts_.fuses_unknown) ids.push_back(*parts_.unknown);
    return Ok{};
  }

  const CharacterParts& parts_;
  TextCutter cutter_;
  BpeEncoder bpe_;
};

std::unique_ptr<Encoder> CharacterTokenizer::make_encoder() const {
  return std::make_unique<CharacterEncoder>(*this);
}

}  // namespace

std::unique_ptr<Tokenizer> make_character_tokenizer(CharacterParts parts) {
  return std::make_unique<CharacterTokenizer>(std::move(parts));
}

}  // namespace hpctl
