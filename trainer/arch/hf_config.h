// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face model directory, as the model's architecture has it
// (registry.h). Keys that would change the computation are checked, not ignored; dropout, of which
// the trainer has none, is not looked at.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/job/train_spec.h"

namespace hpctl {

struct HfConfig {
  ModelSpec model;
  int64_t max_len = 0;  // max_position_embeddings, tokens
  std::string dtype;    // torch_dtype: "float32", "bfloat16", "" = not said
};

std::string to_hf_config_text(const HfConfig& config);

// `path` names the document in errors. kInvalidArgument names the key whose value is not supported.
Result<HfConfig> hf_config_from_text(const std::string& text, const std::string& path);

}  // namespace hpctl
