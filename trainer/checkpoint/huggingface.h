// SPDX-License-Identifier: Apache-2.0
// Weights in the form that Hugging Face tools read: a directory with config.json and either
// model.safetensors or model-0000i-of-0000N.safetensors with model.safetensors.index.json. Names,
// shapes and the order of rotary pairs (LlamaForCausalLM, GPT2LMHeadModel) are the same as in our
// own layout, so values are converted between number types and never permuted. One tensor piece is
// in memory at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/result.h"

namespace hpctl {

// Asked between pieces; true ends the work, with nothing left behind.
using StopAsked = std::function<bool()>;

struct HfExportOptions {
  bool bf16 = false;                        // else fp32, which loses nothing
  bool merge = false;                       // adapters into the model that they were trained beside
  uint64_t max_file_bytes = 5'000'000'000;  // of tensors per file, but at least one tensor
  StopAsked stop_asked = {};                // empty = never
};

// An error if a stop is requested.
inline Outcome check_stop(const StopAsked& asked) {
  if (!asked || !asked()) return Ok{};
  return Error{ErrorCode::kFailedPrecondition, "interrupted; nothing was written"};
}

struct HfReport {
  std::string path;  // what was written: the directory, or the step-0.g0 in it
  uint64_t tensors = 0;
  uint64_t bytes = 0;  // of tensors
  uint64_t files = 0;  // with tensors
};

// For a checkpoint of adapters it is PEFT's format: adapter_config.json and
// adapter_model.safetensors; with `merge` the whole model, W + alpha / rank * B A, computed in
// fp32.
//
// With the tokenizer and the special tokens of the model that it began with (model_files.h).
//
// Writes the parameters of a step directory as `out`, which must not exist or be empty; it appears
// complete or not at all. Every stored range is compared with its checksum. kDataLoss names the
// damaged part; kAlreadyExists if `out` is not empty.
Result<HfReport> export_huggingface(const std::string& step_dir, const std::string& out,
                                    const HfExportOptions& options);

// Makes checkpoint `checkpoint_dir`/step-0.g0 of a model directory: parameters in fp32 (from F32,
// BF16 or F16, all exact), Manifest::weights_only. Everything is checked before anything is
// written. kInvalidArgument or kDataLoss names tensor and file; kAlreadyExists when the directory
// belongs to a job or holds step-0.g0.
Result<HfReport> import_huggingface(const std::string& model_dir, const std::string& checkpoint_dir,
                                    const StopAsked& stop_asked = {});

}  // namespace hpctl
