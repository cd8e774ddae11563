// SPDX-License-Identifier: Apache-2.0
// The adapters of LoRA as separate blocks (docs/decisions/1705-adapters-are-a-model.md): the
// trained state of a job with workload.train.lora is these alone, and code that keeps, shards,
// saves and updates a state sees no difference. Block "layers.i" has, for each target NAME.weight
// of layer i in the order of the model's layout, NAME.lora_A.weight [rank, in] and
// NAME.lora_B.weight [out, rank]: PEFT's names without their prefix.
//
// Initial values are PEFT's: B is 0, A uniform between +-1 / sqrt(in) (Kaiming's with a = sqrt(5)).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/job/train_spec.h"
#include "common/layout/block_layout.h"
#include "common/layout/local_layout.h"

namespace hpctl {

inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";

// Returns whether a matrix of the model gets an adapter.
bool is_lora_target(const LoraSpec& lora, std::string_view tensor);

// One block for each layer.
std::vector<Block> adapter_layout(const ModelSpec& model, const LoraSpec& lora);
// How tp cuts a tensor of the model or of its adapters. B of a matrix whose rows are cut is cut
// like it, and so is A of one whose columns are; the other one of the two is whole on every rank.
CuttingRule cutting_rule(const ModelSpec& model, std::string_view tensor);
// The adapters' blocks with the rule of each tensor.
CutModel cut_adapters(const ModelSpec& model, const LoraSpec& lora);

// The blocks that a job trains: its adapters, or the model.
std::vector<Block> trained_layout(const TrainSpec& train);

// The same with the rule of each tensor.
CutModel trained_cuts(const TrainSpec& train);

// Where A's elements lie; nullopt: the tensor is no A.
std::optional<double> lora_a_bound(const TensorSlot& tensor);

}  // namespace hpctl
