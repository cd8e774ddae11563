// SPDX-License-Identifier: Apache-2.0
// vocab.json and merges.txt, as GPT-2, Qwen and Megatron-LM have them, as the tokenizer.json that
// they stand for. How text is cut stands in neither: tokenizer_config.json names a class that says
// it. Without that file it is GPT-2's way; a class that is not known here is refused.
#pragma once

#include <string>

#include "common/base/result.h"
#include "trainer/data/tokenizer_files.h"

namespace hpctl {

// kInvalidArgument, with the file's name.
Result<std::string> tokenizer_json_of(const TokenizerFiles& files);

}  // namespace hpctl
