// SPDX-License-Identifier: Apache-2.0
// The way of a text to the pieces that become tokens. It is the same for every kind of BPE: added
// tokens are found first. The rest is normalized, then the added tokens that are `normalized` are
// found in it. The text between them is cut into pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/tokenize/added_tokens.h"
#include "trainer/data/tokenize/normalizer.h"
#include "trainer/data/tokenize/pre_tokenizer.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {

struct TextRules {
  std::vector<AddedToken> added;
  std::vector<TextStep> normalizer;
  std::vector<PreStep> pre_tokenizer;
};

// Immutable, shared by threads.
class RuledText {
 public:
  explicit RuledText(TextRules rules);

  const std::vector<AddedToken>& added() const { return added_; }
  // Its id; -1 = there is none of that name.
  int32_t added_token(std::string_view name) const;
  // PreTokenizer::removes_text().
  bool loses_text() const { return pre_tokenizer_.removes_text(); }

 private:
  friend class TextCutter;

  std::string normal_form(const std::string& text) const;

  std::vector<AddedToken> added_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens first_;  // found in the text as it is
  AddedTokens later_;  // found in its normal form
};

// One thread's use of RuledText, which it does not outlive.
class TextCutter {
 public:
  explicit TextCutter(const RuledText& rules) : rules_(rules), pieces_(rules.pre_tokenizer_) {}

  // Appends the ids of added tokens to `ids`, and calls encode_piece(piece, ids), which returns an
  // Outcome, for each piece, in the order of the text. kInvalidArgument, or what encode_piece says,
  // and `ids` as it was: text that is not UTF-8.
  template <typename EncodePiece>
  Outcome encode(std::string_view text, std::vector<int32_t>& ids,
                 const EncodePiece& encode_piece) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid < text.size()) return not_utf8(valid);
    const size_t before = ids.size();
    Outcome done = between(text, rules_.first_, ids, [&](std::string_view part, bool is_first) {
      return encode_part(part, is_first, ids, encode_piece);
    });
    if (!done.ok()) ids.resize(before);
    return done;
  }

 private:
  // The ids of these added tokens, and what `take` makes of the text between them; it is told which
  // is at the beginning.
  template <typename Take>
  static Outcome between(std::string_view text, const AddedTokens& tokens,
                         std::vector<int32_t>& ids, const Take& take) {
    size_t begin = 0;  // of the text since the last added token
    while (const auto match = tokens.find(text, begin)) {
      HP_TRY(take(text.substr(begin, match->begin - begin), begin == 0));
      ids.push_back(match->id);
      begin = match->end;
    }
    return take(text.substr(begin), begin == 0);
  }

  template <typename EncodePiece>
  Outcome encode_part(std::string_view text, bool is_first, std::vector<int32_t>& ids,
                      const EncodePiece& encode_piece) {
    if (text.empty()) return Ok{};
    if (rules_.normalizer_.changes_nothing()) {
      return encode_plain(text, is_first, ids, encode_piece);
    }
    HP_TRY(rules_.normalizer_.apply(text, normal_));
    return between(text, rules_.later_, ids, [&](std::string_view part, bool is_first_part) {
      return encode_plain(part, is_first && is_first_part, ids, encode_piece);
    });
  }

  template <typename EncodePiece>
  Outcome encode_plain(std::string_view text, bool is_first, std::vector<int32_t>& ids,
                       const EncodePiece& encode_piece) {
    if (text.empty()) return Ok{};
    const std::vector<std::string_view>* pieces = nullptr;
    HP_TRY(pieces_.cut(text, is_first, pieces));
    for (const std::string_view piece : *pieces) HP_TRY(encode_piece(piece, ids));
    return Ok{};
  }

  const RuledText& rules_;
  PieceCutter pieces_;
  std::string normal_;
};

}  // namespace hpctl
