// SPDX-License-Identifier: Apache-2.0
// The parts of Hugging Face's tokenizer.json that say what happens to a text before its pieces
// become tokens:
//
//   added_tokens    found in the text first, with lstrip, rstrip and single_word (added_tokens.h);
//                   those that are `normalized` are found once the rest is in its normal form
//   normalizer      null, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace,
//                   or a Sequence of them, which may be empty
//   pre_tokenizer   null, Split, Digits, Punctuation, Whitespace, WhitespaceSplit,
//                   CharDelimiterSplit, Metaspace, ByteLevel, or a Sequence of them; ByteLevel only
//                   as the last
//
// Another part is an error, never guessed. These functions throw json::exception where the document
// has another form.
#pragma once

#include "common/base/json.h"
#include "common/base/result.h"
#include "trainer/data/tokenize/text_rules.h"

namespace hpctl {

Result<std::vector<AddedToken>> read_added_tokens(const nlohmann::json& document);
Result<std::vector<TextStep>> read_normalizer(const nlohmann::json& document);

struct PreTokenizerParts {
  std::vector<PreStep> steps;
  bool is_byte_level = false;  // tokens are of bytes, not of characters
};
Result<PreTokenizerParts> read_pre_tokenizer(const nlohmann::json& document);

// An id of a token, from 0 to kMaxTokenId - 1.
constexpr int64_t kMaxTokenId = 1 << 24;
Result<int32_t> token_id(const nlohmann::json& value);

// Whether the key has a value other than null, false, zero and "".
bool is_set(const nlohmann::json& object, const char* key);

}  // namespace hpctl
