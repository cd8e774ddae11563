// SPDX-License-Identifier: Apache-2.0
// The files of a Hugging Face model directory that are no weights: tokenizer, chat template and
// generation_config.json, and of config.json the ids of the special tokens. An import keeps them in
// step-0.g0/huggingface; a job that begins with it, in its checkpoint directory; an export writes
// them again.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

inline constexpr const char* kModelFilesDirectory = "huggingface";

// Copies those that there are; none: `to` is not made.
Outcome keep_model_files(const std::string& from, const std::string& to);
// Of a checkpoint: in it, or beside it. "" = there are none.
Result<std::string> find_model_files(const std::string& step_dir);

// The text of config.json with the ids of special tokens that the kept one has.
Result<std::string> with_special_tokens(const std::string& config, const std::string& kept);
// Writes the kept ones, but config.json, into a model directory.
Outcome write_model_files(const std::string& kept, const std::string& model_dir);

}  // namespace hpctl
