// SPDX-License-Identifier: Apache-2.0
// tiktoken's files (tokenizer.model of Llama 3, *.tiktoken): a line for each token, its bytes in
// base64 and its rank, which is its id. Neighbours are joined in the order of the rank of the token
// that they make.
//
// How text is cut, and the special tokens, stand in the program that came with the model and not in
// the file. The number of tokens tells which one that was; another number is refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {

// Whether the first line is one of such a file; a SentencePiece model's never is.
bool is_tiktoken(std::string_view bytes);

// `path` is for errors, all of which are kInvalidArgument.
Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view bytes, const std::string& path);

}  // namespace hpctl
