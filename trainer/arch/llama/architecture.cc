// SPDX-License-Identifier: Apache-2.0
// The Llama-3 architecture, except its forward pass (model.cc), config.json (hugging_face.cc), and
// the code that similar architectures share (family.h).
//
// Blocks: "embed" (model.embed_tokens.weight), "layers.0" ... (in forward order: input_layernorm,
// q/k/v/o_proj, q/k_norm, post_attention_layernorm, gate/up/down_proj; a bias follows its weight),
// "head" (model.norm.weight, lm_head.weight; with tied embeddings only the former). Shapes are
// Hugging Face's: [out, in].
//
// Initial values:
//   norms                          1
//   biases                         0
//   embed_tokens                   normal, std 1
//   lm_head, tied embed_tokens     normal, std dim^-1/2, truncated at 3 std
//   o_proj, up_proj, down_proj     normal, std 0.02 / sqrt(2 * (layer + 1))
//   other projections              normal, std 0.02
// (TorchTitan's Llama-3 rules; its cut of the projections at +-2, 100 std, never happens.)
#include <cmath>
#include <utility>

#include "trainer/arch/llama/family.h"

namespace hpctl::llama {
namespace {

Block layer_block(const ModelSpec& m, int64_t index, LayerParts parts) {
  const int64_t q_width = m.heads * m.head_size();
  const int64_t kv_width = m.kv_heads * m.head_size();
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  Block block;
  const auto append_projection = [&](const char* name, int64_t width) {
    append_tensor(block, prefix + "self_attn." + name + ".weight", {width, m.dim});
    if (parts.qkv_biases) append_tensor(block, prefix + "self_attn." + name + ".bias", {width});
  };
  append_tensor(block, prefix + "input_layernorm.weight", {m.dim});
  append_projection("q_proj", q_width);
  append_projection("k_proj", kv_width);
  append_projection("v_proj", kv_width);
  append_tensor(block, prefix + "self_attn.o_proj.weight", {m.dim, q_width});
  if (parts.qk_norms) {
    append_tensor(block, prefix + "self_attn.q_norm.weight", {m.head_size()});
    append_tensor(block, prefix + "self_attn.k_norm.weight", {m.head_size()});
  }
  append_tensor(block, prefix + "post_attention_layernorm.weight", {m.dim});
  append_tensor(block, prefix + "mlp.gate_proj.weight", {m.ffn, m.dim});
  append_tensor(block, prefix + "mlp.up_proj.weight", {m.ffn, m.dim});
  append_tensor(block, prefix + "mlp.down_proj.weight", {m.dim, m.ffn});
  return block;
}

std::vector<Block> own_layout(const ModelSpec& model) { return layout(model, {}); }

// "layers.7" -> 7
int64_t layer_of(const Block& block) {
  constexpr std::string_view kPrefix = "layers.";
  return block.name.starts_with(kPrefix) ? std::stoll(block.name.substr(kPrefix.size())) : 0;
}

}  // namespace

std::vector<Block> layout(const ModelSpec& model, LayerParts parts) {
  Block embed;
  append_tensor(embed, "model.embed_tokens.weight", {model.vocab, model.dim});
  Block head;
  append_tensor(head, "model.norm.weight", {model.dim});
  const auto layer = [parts](const ModelSpec& m, int64_t index) {
    return layer_block(m, index, parts);
  };
  return stack_blocks(model, std::move(embed), layer, std::move(head));
}

bool is_embedding(std::string_view tensor) { return tensor.ends_with("embed_tokens.weight"); }

InitialDistribution initial(const ModelSpec& model, const Block& block, std::string_view tensor) {
  const bool embedding = is_embedding(tensor);
  const bool is_given = model.init_std > 0;
  if (!is_given && embedding && !model.tied_embeddings) return {.std = 1.0};
  if (!is_given && (embedding || tensor.ends_with("lm_head.weight"))) {
    return {.std = 1.0 / std::sqrt(static_cast<double>(model.dim)), .cut = 3};
  }
  const double deviation = is_given ? model.init_std : 0.02;
  const bool scaled = tensor.ends_with("o_proj.weight") || tensor.ends_with("up_proj.weight") ||
                      tensor.ends_with("down_proj.weight");
  if (!scaled) return {.std = deviation};
  return {.std = deviation / std::sqrt(2.0 * static_cast<double>(layer_of(block) + 1))};
}

// Rows of what makes heads and the feed-forward width, columns of what takes them; norms, those of
// heads too, are whole on every rank.
CuttingRule cut(const ModelSpec& model, std::string_view tensor) {
  using enum CuttingRule::Kind;
  const int64_t head = model.head_size();
  const auto is_part = [&](std::string_view part) { return tensor.find(part) != tensor.npos; };
  if (is_part(".q_proj.")) return {.kind = kEqual, .unit = head};
  if (is_part(".k_proj.") || is_part(".v_proj.")) return {.kind = kShared, .unit = head};
  if (is_part(".o_proj.")) return {.kind = kEqual, .dim = 1, .unit = head};
  if (is_part(".gate_proj.") || is_part(".up_proj.")) return {.kind = kEqual};
  if (is_part(".down_proj.")) return {.kind = kEqual, .dim = 1};
  if (is_embedding(tensor) || tensor.ends_with("lm_head.weight")) return {.kind = kUneven};
  return {};
}

int64_t looked_up(const ModelSpec& model) {
  return model.tied_embeddings ? 0 : model.vocab * model.dim;
}

extern const Architecture kArchitecture;
constinit const Architecture kArchitecture = family(own_layout, {.model_type = "llama",
                                                                 .family = "Llama",
                                                                 .base_prefix = "",
                                                                 .read_config = read_config,
                                                                 .config_text = config_text,
                                                                 .is_constant = is_constant});

}  // namespace hpctl::llama
