// SPDX-License-Identifier: Apache-2.0
// What Llama's architecture shares with those of its kind (qwen2, qwen3, mistral): layers of
// RMSNorm, grouped-query attention with rotary positions and SwiGLU under the same names, the first
// values, the forward pass (model.cc) and most keys of config.json. An architecture of the kind is
// a file that says what it has otherwise; the forward pass sees by the layout which parts a layer
// has.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/arch/llama/hugging_face.h"
#include "trainer/arch/registry.h"

namespace hpctl::llama {

// What a layer has besides Llama's.
struct LayerParts {
  bool qkv_biases = false;  // self_attn.{q,k,v}_proj.bias
  bool qk_norms = false;    // self_attn.{q,k}_norm.weight: RMSNorm of each head, before the turn
};

std::vector<Block> layout(const ModelSpec& model, LayerParts parts);

// For Architecture.
bool is_embedding(std::string_view tensor);
InitialDistribution initial(const ModelSpec& model, const Block& block, std::string_view tensor);
int64_t looked_up(const ModelSpec& model);

constexpr Architecture family(std::vector<Block> (*layout)(const ModelSpec& model),
                              HuggingFaceForm form, LayerParts parts = {}) {
  return {.layout = layout,
          .is_embedding = is_embedding,
          .initial = initial,
          .looked_up = looked_up,
          // Of each norm its input and its result, and for one of the two the input serves that
          // the layer keeps anyway; of those of heads their input. The feed-forward part keeps
          // gate, the other half and the product of its SiLU with that.
          .layer_memory = {.norms_kept = 3,
                           .ffn_kept = 3,
                           .ffn_products = 2,
                           .ffn_backward = 3,
                           .head_norms_kept = parts.qk_norms ? 1.0 : 0.0},
          .hugging_face = form};
}

}  // namespace hpctl::llama
