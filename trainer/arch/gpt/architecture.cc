// SPDX-License-Identifier: Apache-2.0
// The GPT-2 architecture, which GPT-3 and Megatron-LM's GPT share, all but its forward pass
// (model.cc) and config.json (hugging_face.cc).
//
// Blocks: "embed" (transformer.wte.weight, transformer.wpe.weight), "layers.0" ... (ln_1,
// attn.c_attn, attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj, each weight and bias), "head"
// (transformer.ln_f.weight and bias; lm_head.weight unless tied). Shapes are Hugging Face's, whose
// GPT-2 has its matrices as [in, out] (Conv1D), and queries, keys and values side by side in the
// columns of c_attn.
//
// Initial values:
//   norms                          1
//   biases                         0
//   attn.c_proj, mlp.c_proj        normal, std 0.02 / sqrt(2 * layers)
//   other matrices, embeddings     normal, std 0.02
// (As Megatron-LM with --init-method-std 0.02, and GPT2LMHeadModel of transformers.)
#include <cmath>
#include <utility>

#include "trainer/arch/gpt/hugging_face.h"
#include "trainer/arch/registry.h"

namespace hpctl::gpt {
namespace {

Block layer_block(const ModelSpec& m, int64_t index) {
  const std::string prefix = "transformer.h." + std::to_string(index) + ".";
  Block block;
  const auto append_pair = [&](const char* name, std::vector<int64_t> shape) {
    const int64_t out = shape.back();
    append_tensor(block, prefix + name + ".weight", std::move(shape));
    append_tensor(block, prefix + name + ".bias", {out});
  };
  append_pair("ln_1", {m.dim});
  append_pair("attn.c_attn", {m.dim, 3 * m.dim});
  append_pair("attn.c_proj", {m.dim, m.dim});
  append_pair("ln_2", {m.dim});
  append_pair("mlp.c_fc", {m.dim, m.ffn});
  append_pair("mlp.c_proj", {m.ffn, m.dim});
  return block;
}

std::vector<Block> layout(const ModelSpec& model) {
  Block embed;
  append_tensor(embed, "transformer.wte.weight", {model.vocab, model.dim});
  append_tensor(embed, "transformer.wpe.weight", {model.max_positions, model.dim});
  Block head;
  append_tensor(head, "transformer.ln_f.weight", {model.dim});
  append_tensor(head, "transformer.ln_f.bias", {model.dim});
  return stack_blocks(model, std::move(embed), layer_block, std::move(head));
}

bool is_embedding(std::string_view tensor) {
  return tensor.ends_with(".wte.weight") || tensor.ends_with(".wpe.weight");
}

// Tensors that write to the residual stream are smaller by the number of such writes.
InitialDistribution initial(const ModelSpec& model, const Block&, std::string_view tensor) {
  const double deviation = model.init_std > 0 ? model.init_std : 0.02;
  if (!tensor.ends_with("c_proj.weight")) return {.std = deviation};
  return {.std = deviation / std::sqrt(2.0 * static_cast<double>(model.layers))};
}

// Matrices are [in, out]: columns make heads and the feed-forward width, rows take them. A bias of
// c_proj comes behind the sum, so it is whole on every rank, as norms and positions are.
CuttingRule cut(const ModelSpec& model, std::string_view tensor) {
  using enum CuttingRule::Kind;
  const int64_t head = model.head_size();
  if (tensor.ends_with("c_attn.weight")) {
    return {.kind = kEqual, .dim = 1, .sections = 3, .unit = head};
  }
  if (tensor.ends_with("c_attn.bias")) return {.kind = kEqual, .sections = 3, .unit = head};
  if (tensor.ends_with("attn.c_proj.weight")) return {.kind = kEqual, .unit = head};
  if (tensor.ends_with("c_fc.weight")) return {.kind = kEqual, .dim = 1};
  if (tensor.ends_with("c_fc.bias")) return {.kind = kEqual};
  if (tensor.ends_with("mlp.c_proj.weight")) return {.kind = kEqual};
  if (tensor.ends_with(".wte.weight") || tensor.ends_with("lm_head.weight")) {
    return {.kind = kUneven};
  }
  return {};
}

int64_t looked_up(const ModelSpec& model) {
  const int64_t tokens = model.tied_embeddings ? 0 : model.vocab * model.dim;
  return tokens + model.max_positions * model.dim;
}

}  // namespace

extern const Architecture kArchitecture;
constinit const Architecture kArchitecture = {
    .layout = layout,
    .is_embedding = is_embedding,
    .cut = cut,
    .initial = initial,
    .looked_up = looked_up,
    // Each norm keeps its input and its result, but one input serves for two, which the layer keeps
    // anyway. The feed-forward part keeps the values before and after GELU.
    .layer_memory = {.norms_kept = 3, .ffn_kept = 2, .ffn_products = 1, .ffn_backward = 2},
    .hugging_face = {.model_type = "gpt2",
                     .family = "GPT-2",
                     .base_prefix = "transformer.",
                     .read_config = read_config,
                     .config_text = config_text,
                     .is_constant = is_constant},
};

}  // namespace hpctl::gpt
