// SPDX-License-Identifier: Apache-2.0
// transformers' LlamaConfig.
#include "trainer/arch/llama/hugging_face.h"

namespace hpctl::llama {
namespace {

constexpr const char* kClass = "LlamaForCausalLM";
constexpr const char* kNoBiases = "biases are not supported";

void read_rope(HfKeys& keys, ModelSpec& model) {
  // transformers 5 has one object with theta and scaling, earlier releases two keys.
  const bool together = keys.has("rope_parameters");
  const char* name = together ? "rope_parameters" : "rope_scaling";
  model.rope_theta = keys.number_or("rope_theta", 10000.0);
  if (!keys.has(name)) return;
  if (!keys.document().at(name).is_object()) {
    keys.refuse(name, "expected an object");
    return;
  }
  HfKeys rope(keys.document().at(name));
  if (together) model.rope_theta = rope.number_or("rope_theta", model.rope_theta);
  const std::string type = rope.text_or("rope_type", rope.text_or("type", "default").c_str());
  if (type == "llama3") {
    model.rope_scaling.factor = rope.number_or("factor", 0);
    model.rope_scaling.low_freq_factor = rope.number_or("low_freq_factor", 1);
    model.rope_scaling.high_freq_factor = rope.number_or("high_freq_factor", 4);
    model.rope_scaling.original_max_len = rope.size("original_max_position_embeddings");
    if (model.rope_scaling.factor <= 0) rope.refuse("factor", "expected a positive number");
  } else if (type != "default") {
    rope.refuse("rope_type", "expected default or llama3, found \"" + type + "\"");
  }
  if (!rope.problem().empty()) keys.refuse(name, rope.problem());
}

// What the built-in Llama does not compute.
void refuse_unsupported(HfKeys& keys, const ModelSpec& model) {
  keys.check_class(kClass);
  if (keys.flag_or("attention_bias", false)) keys.refuse("attention_bias", kNoBiases);
  if (keys.flag_or("mlp_bias", false)) keys.refuse("mlp_bias", kNoBiases);
  const std::string act = keys.text_or("hidden_act", "silu");
  if (act != "silu") keys.refuse("hidden_act", "expected silu, found \"" + act + "\"");
  if (model.heads < 1 || model.dim % model.heads != 0) {
    keys.refuse("num_attention_heads", "does not divide hidden_size");
  } else if (keys.size_or("head_dim", model.dim / model.heads) != model.dim / model.heads) {
    keys.refuse("head_dim", "expected hidden_size / num_attention_heads");
  }
}

}  // namespace

void read_config(HfKeys& keys, HfConfig& config) {
  ModelSpec& m = config.model;
  m.dim = keys.size("hidden_size");
  m.ffn = keys.size("intermediate_size");
  m.layers = keys.size("num_hidden_layers");
  m.heads = keys.size("num_attention_heads");
  m.kv_heads = keys.size_or("num_key_value_heads", m.heads);
  m.vocab = keys.size("vocab_size");
  m.norm_eps = keys.number_or("rms_norm_eps", 1e-6);
  m.tied_embeddings = keys.flag_or("tie_word_embeddings", false);
  m.max_positions = config.max_len = keys.size_or("max_position_embeddings", 2048);
  read_rope(keys, m);
  refuse_unsupported(keys, m);
  if (m.dim < 1 || m.ffn < 1 || m.layers < 1 || m.layers > 10'000 || m.kv_heads < 1 ||
      m.vocab < 1 || config.max_len < 1) {
    keys.refuse(
        "hidden_size, intermediate_size, num_hidden_layers, num_key_value_heads, "
        "vocab_size or max_position_embeddings",
        "impossible value");
  }
}

std::string config_text(const HfConfig& config) {
  const ModelSpec& m = config.model;
  nlohmann::ordered_json document = {{"architectures", {kClass}},
                                     {"model_type", "llama"},
                                     {"hidden_size", m.dim},
                                     {"intermediate_size", m.ffn},
                                     {"num_hidden_layers", m.layers},
                                     {"num_attention_heads", m.heads},
                                     {"num_key_value_heads", m.kv_heads},
                                     {"head_dim", m.dim / m.heads},
                                     {"vocab_size", m.vocab},
                                     {"max_position_embeddings", config.max_len},
                                     {"hidden_act", "silu"},
                                     {"rms_norm_eps", m.norm_eps},
                                     {"rope_theta", m.rope_theta},
                                     {"rope_scaling", nullptr},
                                     {"tie_word_embeddings", m.tied_embeddings},
                                     {"attention_bias", false},
                                     {"mlp_bias", false},
                                     {"attention_dropout", 0.0},
                                     {"torch_dtype", config.dtype},
                                     {"use_cache", true}};
  if (m.rope_scaling.factor > 0) {
    document["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", m.rope_scaling.factor},
        {"low_freq_factor", m.rope_scaling.low_freq_factor},
        {"high_freq_factor", m.rope_scaling.high_freq_factor},
        {"original_max_position_embeddings", m.rope_scaling.original_max_len}};
  }
  return document.dump(2) + "\n";
}

// The rotary frequencies.
bool is_constant(std::string_view tensor) { return tensor.ends_with(".rotary_emb.inv_freq"); }

}  // namespace hpctl::llama
