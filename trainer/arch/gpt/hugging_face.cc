// SPDX-License-Identifier: Apache-2.0
// transformers' GPT2Config.
#include "trainer/arch/gpt/hugging_face.h"

#include "common/base/json_text.h"

namespace hpctl::gpt {
namespace {

constexpr const char* kClass = "GPT2LMHeadModel";

}  // namespace

// Defaults are GPT2Config's.
void read_config(HfKeys& keys, HfConfig& config) {
  ModelSpec& m = config.model;
  m.dim = keys.size("n_embd");
  m.ffn = keys.size_or("n_inner", 4 * m.dim);
  m.layers = keys.size("n_layer");
  m.heads = keys.size("n_head");
  m.kv_heads = m.heads;
  m.vocab = keys.size("vocab_size");
  m.norm_eps = keys.number_or("layer_norm_epsilon", 1e-5);
  m.tied_embeddings = keys.flag_or("tie_word_embeddings", true);
  m.max_positions = config.max_len = keys.size("n_positions");
  keys.check_class(kClass);
  const std::string act = keys.text_or("activation_function", "gelu_new");
  if (act != "gelu_new" && act != "gelu_pytorch_tanh") {
    keys.refuse("activation_function", "expected gelu_new, found \"" + act + "\"");
  }
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("add_cross_attention", false);
  if (m.heads < 1 || m.dim % m.heads != 0) keys.refuse("n_head", "does not divide n_embd");
  if (m.dim < 1 || m.ffn < 1 || m.layers < 1 || m.layers > 10'000 || m.vocab < 1 ||
      m.max_positions < 1) {
    keys.refuse("n_embd, n_inner, n_layer, vocab_size or n_positions", "impossible value");
  }
}

std::string config_text(const HfConfig& config) {
  const ModelSpec& m = config.model;
  const nlohmann::ordered_json document = {{"architectures", {kClass}},
                                           {"model_type", "gpt2"},
                                           {"n_embd", m.dim},
                                           {"n_inner", m.ffn},
                                           {"n_layer", m.layers},
                                           {"n_head", m.heads},
                                           {"n_positions", m.max_positions},
                                           {"vocab_size", m.vocab},
                                           {"activation_function", "gelu_new"},
                                           {"layer_norm_epsilon", m.norm_eps},
                                           {"tie_word_embeddings", m.tied_embeddings},
                                           {"scale_attn_weights", true},
                                           {"scale_attn_by_inverse_layer_idx", false},
                                           {"attn_pdrop", 0.0},
                                           {"embd_pdrop", 0.0},
                                           {"resid_pdrop", 0.0},
                                           {"torch_dtype", config.dtype},
                                           {"use_cache", true}};
  return json_text(document, {.indent = 2}) + "\n";
}

// The causal mask.
bool is_constant(std::string_view tensor) {
  return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias");
}

}  // namespace hpctl::gpt
