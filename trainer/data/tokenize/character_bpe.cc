// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/character_bpe.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace hpctl {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // ▁

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  if (begin == 0) return;
  out.append(text, begin);
  text = std::move(out);
}

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
      : parts_(std::move(parts)), bpe_(no_bytes(), parts_.merges, {}) {
    std::vector<AddedToken> first;
    std::vector<AddedToken> later;
    for (const AddedToken& token : parts_.added) {
      (token.is_normalized && !parts_.steps.empty() ? later : first).push_back(token);
    }
    for (AddedToken& token : later) {
      if (!normalise(token.text).ok()) token.text.clear();  // never found
    }
    first_ = AddedTokens(std::move(first));
    later_ = AddedTokens(std::move(later));
    for (const auto& [text, id] : parts_.tokens) {
      std::string shown = text;
      replace_all(shown, kSpaceMark, " ");
      texts_.emplace(id, std::move(shown));
    }
    for (size_t b = 0; b < parts_.bytes.size(); ++b) {
      texts_.insert_or_assign(parts_.bytes[b], std::string(1, static_cast<char>(b)));
    }
    for (const AddedToken& token : parts_.added) texts_.insert_or_assign(token.id, token.text);
  }

  uint64_t vocabulary() const override { return parts_.vocabulary; }
  int32_t end_of_document() const override {
    for (const char* name : {"</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>"}) {
      if (const int32_t id = added_token(name); id >= 0) return id;
    }
    return -1;
  }
  int32_t added_token(std::string_view name) const final {
    const auto found = std::find_if(parts_.added.begin(), parts_.added.end(),
                                    [&](const AddedToken& token) { return token.text == name; });
    return found == parts_.added.end() ? -1 : found->id;
  }
  std::unique_ptr<Encoder> make_encoder() const override;
  Result<std::string> decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      const auto found = texts_.find(id);
      if (found == texts_.end()) return no_token(id);
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

  Outcome normalise(std::string& text) const {
    for (const TextStep& step : parts_.steps) {
      if (step.form) {
        std::string buffer;
        std::string_view normal = text;
        HP_TRY(Normalizer({*step.form}).apply(normal, buffer));
        text = std::string(normal);
      } else if (!step.from.empty()) {
        replace_all(text, step.from, step.to);
      } else if (!text.empty()) {
        text.insert(0, step.to);
      }
    }
    return Ok{};
  }

  const CharacterParts parts_;
  AddedTokens first_;  // found in the text as it is
  AddedTokens later_;  // found in its normal form
  std::unordered_map<int32_t, std::string> texts_;
  BpeModel bpe_;
};

class CharacterEncoder : public Encoder {
 public:
  explicit CharacterEncoder(const CharacterTokenizer& tokenizer)
      : tokenizer_(tokenizer), bpe_(tokenizer.bpe_) {}

  Outcome encode(std::string_view text, std::vector<int32_t>& ids) override {
    const size_t valid = valid_utf8_prefix(text);
    if (valid < text.size()) return not_utf8(valid);
    const size_t before = ids.size();
    Outcome done = encode_all(text, ids);
    if (!done.ok()) ids.resize(before);
    return done;
  }

 private:
  Outcome encode_all(std::string_view text, std::vector<int32_t>& ids) {
    return cut(text, tokenizer_.first_, ids, [&](std::string_view between, bool is_first) {
      return encode_between(std::string(between), is_first, ids);
    });
  }

  Outcome encode_between(std::string text, bool is_first, std::vector<int32_t>& ids) {
    HP_TRY(tokenizer_.normalise(text));
    return cut(text, tokenizer_.later_, ids,
               [&](std::string_view rest, bool is_first_rest) -> Outcome {
                 encode_plain(std::string(rest), is_first && is_first_rest, ids);
                 return Ok{};
               });
  }

  // The ids of these added tokens, and what `encode` makes of the text between them; it is told
  // which is at the beginning.
  template <typename Encode>
  static Outcome cut(std::string_view text, const AddedTokens& tokens, std::vector<int32_t>& ids,
                     const Encode& encode) {
    size_t begin = 0;
    while (const auto match = tokens.find(text, begin)) {
      HP_TRY(encode(text.substr(begin, match->begin - begin), begin == 0));
      ids.push_back(match->id);
      begin = match->end;
    }
    return encode(text.substr(begin), begin == 0);
  }

  // Text without added tokens.
  void encode_plain(std::string text, bool is_first, std::vector<int32_t>& ids) {
    if (text.empty()) return;
    const auto& metaspace = tokenizer_.parts_.metaspace;
    if (metaspace) {
      replace_all(text, " ", metaspace->mark);
      const bool prepends = metaspace->prepend == Metaspace::Prepend::kAlways ||
                            (metaspace->prepend == Metaspace::Prepend::kFirst && is_first);
      if (prepends && !text.starts_with(metaspace->mark)) text.insert(0, metaspace->mark);
    }
    const std::string& behind = tokenizer_.parts_.split_behind;
    const std::string before = metaspace && metaspace->splits ? metaspace->mark : "";
    for (size_t begin = 0; begin < text.size();) {
      size_t end = text.size();
      if (!before.empty()) end = std::min(end, text.find(before, begin + 1));
      if (!behind.empty()) {
        const size_t found = text.find(behind, begin);
        if (found != std::string::npos) end = std::min(end, found + behind.size());
      }
      encode_piece(std::string_view(text).substr(begin, end - begin), ids);
      begin = end;
    }
  }

  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
    const CharacterParts& parts = tokenizer_.parts_;
    if (parts.ignore_merges) {
      if (const auto whole = parts.tokens.find(piece); whole != parts.tokens.end()) {
        ids.push_back(whole->second);
        return;
      }
    }
    const size_t first = ids.size();
    for (size_t at = 0; at < piece.size();) {
      const std::string_view character = piece.substr(at, character_size(piece[at]));
      at += character.size();
      if (const auto token = parts.tokens.find(character); token != parts.tokens.end()) {
        ids.push_back(token->second);
        continue;
      }
      for (const char byte : character) ids.push_back(parts.bytes[static_cast<uint8_t>(byte)]);
    }
    bpe_.join(ids, first);
  }

  const CharacterTokenizer& tokenizer_;
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
