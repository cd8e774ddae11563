// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/bpe_tokenizer.h"

#include <algorithm>
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
      : normalizer_(parts.forms),
        added_(std::move(parts.added)),
        add_prefix_space_(parts.add_prefix_space),
        patterns_(std::move(parts.patterns)),
        vocabulary_(parts.vocabulary),
        bpe_(bytes_of_tokens(parts.tokens), parts.merges,
             parts.ignore_merges ? parts.tokens : TokensByBytes(), parts.ranks) {
    std::vector<AddedToken> first;
    std::vector<AddedToken> later;
    for (const AddedToken& token : added_) {
      const bool is_later = token.is_normalized && !normalizer_.changes_nothing();
      (is_later ? later : first).push_back(token);
    }
    for (AddedToken& token : later) token.text = normal_form(token.text);
    first_ = AddedTokens(std::move(first));
    later_ = AddedTokens(std::move(later));
    for (const char* name :
         {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]"}) {
      if (end_of_document_ < 0) end_of_document_ = added_token(name);
    }
    for (const auto& [bytes, id] : parts.tokens) texts_.emplace(id, bytes);
    for (const AddedToken& token : added_) texts_.insert_or_assign(token.id, token.text);
  }

  uint64_t vocabulary() const override { return vocabulary_; }
  int32_t end_of_document() const override { return end_of_document_; }
  int32_t added_token(std::string_view name) const final {
    const auto found = std::find_if(added_.begin(), added_.end(),
                                    [&](const AddedToken& token) { return token.text == name; });
    return found == added_.end() ? -1 : found->id;
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
  friend class ByteLevelEncoder;

  static std::array<int32_t, 256> bytes_of_tokens(const TokensByBytes& tokens) {
    std::array<int32_t, 256> ids{};
    for (size_t b = 0; b < ids.size(); ++b) {
      const auto found = tokens.find(std::string(1, static_cast<char>(b)));
      ids[b] = found == tokens.end() ? -1 : found->second;
    }
    return ids;
  }

  // A token whose text has no normal form is never found.
  std::string normal_form(const std::string& text) const {
    std::string buffer;
    std::string_view normal = text;
    return normalizer_.apply(normal, buffer).ok() ? std::string(normal) : "";
  }

  Normalizer normalizer_;
  std::vector<AddedToken> added_;
  AddedTokens first_;  // found in the text as it is
  AddedTokens later_;  // found in its normal form
  bool add_prefix_space_;
  std::vector<SplitPattern> patterns_;
  uint64_t vocabulary_;
  int32_t end_of_document_ = -1;
  std::unordered_map<int32_t, std::string> texts_;  // by id
  BpeModel bpe_;
};

class ByteLevelEncoder : public Encoder {
 public:
  explicit ByteLevelEncoder(const BpeTokenizer& tokenizer)
      : tokenizer_(tokenizer), bpe_(tokenizer.bpe_) {
    for (const SplitPattern& pattern : tokenizer.patterns_) splitters_.emplace_back(pattern);
  }

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
    return cut(text, tokenizer_.first_, ids, [&](std::string_view between) -> Outcome {
      if (tokenizer_.normalizer_.changes_nothing()) return encode_plain(between, ids);
      HP_TRY(tokenizer_.normalizer_.apply(between, normal_));
      return cut(between, tokenizer_.later_, ids,
                 [&](std::string_view rest) { return encode_plain(rest, ids); });
    });
  }

  // The ids of these added tokens, and what `encode` makes of the text between them.
  template <typename Encode>
  static Outcome cut(std::string_view text, const AddedTokens& tokens, std::vector<int32_t>& ids,
                     const Encode& encode) {
    size_t begin = 0;  // of the text since the last added token
    while (const auto match = tokens.find(text, begin)) {
      HP_TRY(encode(text.substr(begin, match->begin - begin)));
      ids.push_back(match->id);
      begin = match->end;
    }
    return encode(text.substr(begin));
  }

  // Text without added tokens.
  Outcome encode_plain(std::string_view text, std::vector<int32_t>& ids) {
    if (text.empty()) return Ok{};
    if (tokenizer_.add_prefix_space_ && text[0] != ' ') {
      prefixed_ = " " + std::string(text);
      text = prefixed_;
    }
    pieces_.assign(1, text);
    for (Splitter& splitter : splitters_) {
      next_.clear();
      for (const std::string_view piece : pieces_) HP_TRY(splitter.split(piece, next_));
      pieces_.swap(next_);
    }
    for (const std::string_view piece : pieces_) HP_TRY(bpe_.encode(piece, ids));
    return Ok{};
  }

  const BpeTokenizer& tokenizer_;
  BpeEncoder bpe_;
  std::vector<Splitter> splitters_;
  std::string normal_;
  std::string prefixed_;
  std::vector<std::string_view> pieces_;
  std::vector<std::string_view> next_;
};

std::unique_ptr<Encoder> BpeTokenizer::make_encoder() const {
  return std::make_unique<ByteLevelEncoder>(*this);
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace hpctl
