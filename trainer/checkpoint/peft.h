// SPDX-License-Identifier: Apache-2.0
// A checkpoint of adapters for others: in the layout of Hugging Face's PEFT (LoraConfig,
// save_pretrained), and merged into the weights they were trained beside.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/train_spec.h"
#include "trainer/checkpoint/loader.h"

namespace hpctl {

// Before the names of adapter_model.safetensors, which otherwise are ours.
inline constexpr const char* kPeftPrefix = "base_model.model.";

// adapter_config.json. base_model_name_or_path is null: the loader names the model.
std::string peft_config_text(const LoraSpec& lora);

// Adds scale * B A to the matrices that have adapters, piece by piece.
class MergedAdapters {
 public:
  // For a step directory of adapters; errors as CheckpointLoader.
  static Result<MergedAdapters> open(const std::string& step_dir);

  // Reads the adapter of a tensor of the model, where it has one.
  Outcome select(const TensorSlot& tensor);
  // To elements [first, first + values.size()) of that tensor, row-major. Sums are fp32, over the
  // rank in ascending order, then one addition to the weight.
  void add(int64_t first, std::span<float> values);

 private:
  explicit MergedAdapters(CheckpointLoader loader) : loader_(std::move(loader)) {}

  CheckpointLoader loader_;
  int64_t columns_ = 0;   // of the selected tensor; 0 = it has no adapter
  std::vector<float> a_;  // [rank, columns]
  std::vector<float> b_;  // [rows, rank]
  std::vector<float> row_;
};

}  // namespace hpctl
