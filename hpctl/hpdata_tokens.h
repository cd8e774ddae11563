// SPDX-License-Identifier: Apache-2.0
// The part of hpdata that `hpctl generate` runs: text to tokens and back.
//
//   hpdata encode --tokenizer=T -- TEXT     prints {"ids": [...], "vocabulary", "end"}; end -1 =
//                                           the tokenizer has no token that ends a document
//   hpdata decode --tokenizer=T -- [ID...]  prints their text, and nothing else
//
// The reason of a failure is on stderr; its exit status is 2 where the input is wrong, else 1.
#pragma once

#include <string>
#include <vector>

namespace hpctl {

// The exit status.
int run_tokens(const std::vector<std::string>& words);

}  // namespace hpctl
