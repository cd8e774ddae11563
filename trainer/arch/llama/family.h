// SPDX-License-Identifier: Apache-2.0
// The code that Llama's architecture shares with similar ones (qwen2, qwen3, mistral): layers of
// RMSNorm, grouped-query attention with rotary positions and SwiGLU under the same names, the
// initial values, the forward pass (model.cc) and most keys of config.json. Such an architecture is
// a file with its differences; the forward pass sees by the layout which parts a layer has.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/arch/llama/hugging_face.h"
#include "trainer/arch/registry.h"

namespace hpctl::llama {

// The parts of a layer besides Llama's.
struct LayerParts {
  bool qkv_biases = false;  // self_attn.{q,k,v}_proj.bias
  bool qk_norms = false;    // self_attn.{q,k}_norm.weight: RMSNorm of each head, before the turn
};

std::vector<Block> layout(const ModelSpec& model, LayerParts parts);

// For Architecture.
bool is_embedding(std::string_view tensor);
InitialDistribution initial(const ModelSpec& model, const Block& block, std::string_view tensor);
CuttingRule cut(const ModelSpec& model, std::string_view tensor);
int64_t looked_up(const ModelSpec& model);

constexpr Architecture family(std::vector<Block> (*layout)(const ModelSpec& model),
                              HuggingFaceForm form, LayerParts parts = {}) {
  return {.layout = layout,
          .is_embedding = is_embedding,
          .cut = cut,
          .initial = initial,
          .looked_up = looked_up,
          // Each norm keeps its input and its result, but one input serves for two, which the layer
          // keeps anyway; norms of heads keep their input. The feed-forward part keeps gate, the
          // other half and the product of its SiLU with that.
          .layer_memory = {.norms_kept = 3,
                           .ffn_kept = 3,
                           .ffn_products = 2,
                           .ffn_backward = 3,
                           .head_norms_kept = parts.qk_norms ? 1.0 : 0.0},
          .hugging_face = form};
}

}  // namespace hpctl::llama
