// SPDX-License-Identifier: Apache-2.0
// The files of a tokenizer: the one that is named, and beside a vocab.json those that it needs.
// Not for parsing: a job asks whether its data was prepared with the same tokenizer.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

struct TokenizerFiles {
  std::string path;      // of `text`
  std::string text;      // of the file that is named
  bool is_pair = false;  // vocab.json and merges.txt
  std::string merges;    // merges.txt
  // Beside vocab.json; "" = there is none.
  std::string config;  // tokenizer_config.json
  std::string added;   // added_tokens.json
  std::string hash;    // SHA-256; of a single file that of its content
};

// `name` is a file; one whose name ends in vocab.json or merges.txt stands for both. Errors say
// what a tokenizer is.
Result<TokenizerFiles> read_tokenizer_files(const std::string& name);

}  // namespace hpctl
