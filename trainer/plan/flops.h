// SPDX-License-Identifier: Apache-2.0
// Floating-point operations of training, per token, as the field counts them: 6 per matrix
// parameter (2 forward, 4 backward), attention in one of two ways, recomputation not at all.
// Sources: TorchTitan `models/utils.py` (causal attention counted whole, the embedding table left
// out unless it is the output projection too); Megatron-LM counts the causal half. For Llama-3 8B
// at 8192 tokens that is 57.9 and 51.5 GFLOP. For gpt, `whole` is the formula of Megatron-LM's
// paper without recomputation, 72 l h^2 (1 + s / 6h + V / 12lh), and what biases and norms add to
// it (less than 0.1 %): learned positions are looked up, not multiplied. With a sliding window,
// `whole` counts the window for every token, `causal` the keys in it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/job/train_spec.h"
#include "common/layout/block_layout.h"

namespace hpctl {

struct FlopsPerToken {
  double whole = 0;    // TorchTitan's convention
  double causal = 0;   // Megatron-LM's
  double forward = 0;  // of `whole`, what recomputing all of it would add
};

// `trained`: the layout of what is trained. With `lora` the model beside it is frozen: 4 per
// parameter, 2 in each direction.
FlopsPerToken flops_per_token(const ModelSpec& model, const std::vector<Block>& trained,
                              int64_t seq_len, const LoraSpec& lora = {});

}  // namespace hpctl
