// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/llama/hugging_face.h"

#include "common/base/json_text.h"

namespace hpctl::llama {

using nlohmann::json;

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

void read_heads(HfKeys& keys, ModelSpec& model, int64_t head_dim) {
  model.heads = keys.size("num_attention_heads");
  model.kv_heads = keys.size_or("num_key_value_heads", model.heads);
  const bool free = traits_of(model.arch).head_dim == HeadDim::kFree;
  const bool given = keys.has("head_dim") || head_dim > 0;
  if (model.heads < 1 || (!(free && given) && model.dim % model.heads != 0)) {
    keys.refuse("num_attention_heads", "does not divide hidden_size");
    return;
  }
  const int64_t size = keys.size_or("head_dim", given ? head_dim : model.dim / model.heads);
  if (size * model.heads == model.dim) return;
  if (!free) keys.refuse("head_dim", "expected hidden_size / num_attention_heads");
  if (size < 2 || size % 2 != 0) keys.refuse("head_dim", "expected an even number");
  model.head_dim = size;
}

// Refuses settings that the layers here do not compute.
void refuse_unsupported(HfKeys& keys, const char* model_class) {
  keys.check_class(model_class);
  if (keys.flag_or("attention_bias", false)) keys.refuse("attention_bias", kNoBiases);
  if (keys.flag_or("mlp_bias", false)) keys.refuse("mlp_bias", kNoBiases);
  const std::string act = keys.text_or("hidden_act", "silu");
  if (act != "silu") keys.refuse("hidden_act", "expected silu, found \"" + act + "\"");
  // Windows of some layers only: Qwen's key, and the list that transformers 5 makes of it.
  keys.only("use_sliding_window", false);
  if (!keys.has("layer_types")) return;
  for (const json& type : keys.document().at("layer_types")) {
    if (type != "full_attention") keys.refuse("layer_types", "expected full_attention alone");
  }
}

}  // namespace

void read_keys(HfKeys& keys, HfConfig& config, const char* model_class, int64_t head_dim) {
  ModelSpec& m = config.model;
  m.dim = keys.size("hidden_size");
  m.ffn = keys.size("intermediate_size");
  m.layers = keys.size("num_hidden_layers");
  read_heads(keys, m, head_dim);
  m.vocab = keys.size("vocab_size");
  m.norm_eps = keys.number_or("rms_norm_eps", 1e-6);
  m.tied_embeddings = keys.flag_or("tie_word_embeddings", false);
  m.max_positions = config.max_len = keys.size_or("max_position_embeddings", 2048);
  read_rope(keys, m);
  refuse_unsupported(keys, model_class);
  if (m.dim < 1 || m.ffn < 1 || m.layers < 1 || m.layers > 10'000 || m.kv_heads < 1 ||
      m.vocab < 1 || config.max_len < 1) {
    keys.refuse(
        "hidden_size, intermediate_size, num_hidden_layers, num_key_value_heads, "
        "vocab_size or max_position_embeddings",
        "impossible value");
  }
}

nlohmann::ordered_json document_of(const HfConfig& config, const char* model_class) {
  const ModelSpec& m = config.model;
  nlohmann::ordered_json document = {{"architectures", {model_class}},
                                     {"model_type", to_word(m.arch)},
                                     {"hidden_size", m.dim},
                                     {"intermediate_size", m.ffn},
                                     {"num_hidden_layers", m.layers},
                                     {"num_attention_heads", m.heads},
                                     {"num_key_value_heads", m.kv_heads},
                                     {"head_dim", m.head_size()},
                                     {"vocab_size", m.vocab},
                                     {"max_position_embeddings", config.max_len},
                                     {"hidden_act", "silu"},
                                     {"rms_norm_eps", m.norm_eps},
                                     {"rope_theta", m.rope_theta},
                                     {"rope_scaling", nullptr},
                                     {"tie_word_embeddings", m.tied_embeddings},
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
  return document;
}

std::string text_of(const nlohmann::ordered_json& document) {
  return json_text(document, {.indent = 2}) + "\n";
}

void read_config(HfKeys& keys, HfConfig& config) { read_keys(keys, config, kClass); }

std::string config_text(const HfConfig& config) {
  nlohmann::ordered_json document = document_of(config, kClass);
  document["attention_bias"] = false;
  document["mlp_bias"] = false;
  return text_of(document);
}

// The rotary frequencies.
bool is_constant(std::string_view tensor) { return tensor.ends_with(".rotary_emb.inv_freq"); }

}  // namespace hpctl::llama
