// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/bpe_tokenizer.h"

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace hpctl {
namespace {

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : text_(std::move(parts.text)),
        vocabulary_(parts.vocabulary),
        bpe_(bytes_of_tokens(parts.tokens), parts.merges,
             parts.ignore_merges ? parts.tokens : TokensByBytes(), parts.ranks) {
    for (const char* name :
         {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]"}) {
      if (end_of_document_ < 0) end_of_document_ = text_.added_token(name);
    }
    for (const auto& [bytes, id] : parts.tokens) texts_.emplace(id, bytes);
    for (const AddedToken& token : text_.added()) texts_.insert_or_assign(token.id, token.text);
  }

  uint64_t vocabulary() const override { return vocabulary_; }
  int32_t end_of_document() const override { return end_of_document_; }
  int32_t added_token(std::string_view name) const final { return text_.added_token(name); }
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
  friend class ByteLevelEncoder;

  static std::array<int32_t, 256> bytes_of_tokens(const TokensByBytes& tokens) {
    std::array<int32_t, 256> ids{};
    for (size_t b = 0; b < ids.size(); ++b) {
      const auto found = tokens.find(std::string(1, static_cast<char>(b)));
      ids[b] = found == tokens.end() ? -1 : found->second;
    }
    return ids;
  }

  RuledText text_;
  uint64_t vocabulary_;
  int32_t end_of_document_ = -1;
  std::unordered_map<int32_t, std::string> texts_;  // by id
  BpeModel bpe_;
};

class ByteLevelEncoder : public Encoder {
 public:
  explicit ByteLevelEncoder(const BpeTokenizer& tokenizer)
      : cutter_(tokenizer.text_), bpe_(tokenizer.bpe_) {}

  Outcome encode(std::string_view text, std::vector<int32_t>& ids) override {
    return cutter_.encode(text, ids, [&](std::string_view piece, std::vector<int32_t>& of_piece) {
      return bpe_.encode(piece, of_piece);
    });
  }

 private:
  TextCutter cutter_;
  BpeEncoder bpe_;
};

std::unique_ptr<Encoder> BpeTokenizer::make_encoder() const {
  return std::make_unique<ByteLevelEncoder>(*this);
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace hpctl
