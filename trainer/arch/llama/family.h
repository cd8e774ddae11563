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
double norm_bytes(double compute_bytes, bool fused);
double head_norm_bytes(double compute_bytes, bool fused);

constexpr Architecture family(std::vector<Block> (*layout)(const ModelSpec& model),
                              HuggingFaceForm form, LayerParts parts = {}) {
  return {.layout = layout,
          .is_embedding = is_embedding,
          .initial = initial,
          .looked_up = looked_up,
          // The feed-forward part keeps gate, its SiLU (not where it is fused), the other half and
          // their product.
          .layer_memory = {.norm_bytes = norm_bytes,
                           .ffn_kept = 4,
                           .ffn_fused = 3,
                           .ffn_products = 2,
                           .ffn_backward = 3,
                           .head_norm_bytes = parts.qk_norms ? head_norm_bytes : nullptr},
          .hugging_face = form};
}

}  // namespace hpctl::llama
