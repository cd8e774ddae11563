// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/hf_config.h"

#include <nlohmann/json.hpp>

#include "common/base/bounded_json.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr const char* kLlama = "LlamaForCausalLM";
constexpr const char* kGpt = "GPT2LMHeadModel";

// Reads keys and keeps the first thing that cannot be.
class Keys {
 public:
  explicit Keys(const json& document) : document_(document) {}
  const std::string& problem() const { return problem_; }

  // Absent and null are the same to transformers.
  bool has(const char* key) const {
    return document_.contains(key) && !document_.at(key).is_null();
  }
  int64_t size(const char* key) { return has(key) ? size_of(key) : missing(key); }
  int64_t size_or(const char* key, int64_t otherwise) {
    return has(key) ? size_of(key) : otherwise;
  }
  double number_or(const char* key, double otherwise) {
    if (!has(key)) return otherwise;
    if (document_.at(key).is_number()) return document_.at(key).get<double>();
    return static_cast<double>(refuse(key, "expected a number"));
  }
  std::string text_or(const char* key, const char* otherwise) {
    if (!has(key)) return otherwise;
    if (document_.at(key).is_string()) return document_.at(key).get<std::string>();
    refuse(key, "expected text");
    return otherwise;
  }
  bool flag_or(const char* key, bool otherwise) {
    if (!has(key)) return otherwise;
    if (document_.at(key).is_boolean()) return document_.at(key).get<bool>();
    refuse(key, "expected true or false");
    return otherwise;
  }
  void only(const char* key, bool value) {
    if (flag_or(key, value) == value) return;
    refuse(key, value ? "false is not supported" : "true is not supported");
  }
  int64_t refuse(const std::string& key, const std::string& why) {
    if (problem_.empty()) problem_ = key + ": " + why;
    return 0;
  }

 private:
  int64_t size_of(const char* key) {
    const json& value = document_.at(key);
    if (value.is_number_unsigned() && value.get<uint64_t>() <= (uint64_t{1} << 32)) {
      return value.get<int64_t>();
    }
    return refuse(key, "expected a whole number");
  }
  int64_t missing(const char* key) { return refuse(key, "is missing"); }

  const json& document_;
  std::string problem_;
};

constexpr const char* kNoBiases = "biases are not supported";

void read_rope(Keys& keys, const json& document, ModelSpec& model) {
  // transformers 5 has one object with theta and scaling, earlier releases two keys.
  const bool together = keys.has("rope_parameters");
  const char* name = together ? "rope_parameters" : "rope_scaling";
  model.rope_theta = keys.number_or("rope_theta", 10000.0);
  if (!keys.has(name)) return;
  if (!document.at(name).is_object()) {
    keys.refuse(name, "expected an object");
    return;
  }
  Keys rope(document.at(name));
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

void check_architecture(Keys& keys, const json& document, const char* expected) {
  if (keys.has("architectures") && document.at("architectures") != json::array({expected})) {
    keys.refuse(
        "architectures",
        std::string("expected [\"") + expected + "\"], found " +
            document.at("architectures").dump(-1, ' ', true, json::error_handler_t::replace));
  }
}

// What the built-in Llama does not compute.
void refuse_unsupported(Keys& keys, const json& document, const ModelSpec& model) {
  check_architecture(keys, document, kLlama);
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

HfConfig read_llama(Keys& keys, const json& document) {
  HfConfig config;
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
  read_rope(keys, document, m);
  refuse_unsupported(keys, document, m);
  if (m.dim < 1 || m.ffn < 1 || m.layers < 1 || m.layers > 10'000 || m.kv_heads < 1 ||
      m.vocab < 1 || config.max_len < 1) {
    keys.refuse(
        "hidden_size, intermediate_size, num_hidden_layers, num_key_value_heads, "
        "vocab_size or max_position_embeddings",
        "impossible value");
  }
  return config;
}

// Defaults are GPT2Config's.
HfConfig read_gpt(Keys& keys, const json& document) {
  HfConfig config;
  ModelSpec& m = config.model;
  m.arch = "gpt";
  m.dim = keys.size("n_embd");
  m.ffn = keys.size_or("n_inner", 4 * m.dim);
  m.layers = keys.size("n_layer");
  m.heads = keys.size("n_head");
  m.kv_heads = m.heads;
  m.vocab = keys.size("vocab_size");
  m.norm_eps = keys.number_or("layer_norm_epsilon", 1e-5);
  m.tied_embeddings = keys.flag_or("tie_word_embeddings", true);
  m.max_positions = config.max_len = keys.size("n_positions");
  check_architecture(keys, document, kGpt);
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
  return config;
}

std::string gpt_text(const HfConfig& config) {
  const ModelSpec& m = config.model;
  const nlohmann::ordered_json document = {{"architectures", {kGpt}},
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
  return document.dump(2) + "\n";
}

}  // namespace

std::string to_hf_config_text(const HfConfig& config) {
  const ModelSpec& m = config.model;
  if (m.arch == "gpt") return gpt_text(config);
  nlohmann::ordered_json document = {{"architectures", {kLlama}},
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

Result<HfConfig> hf_config_from_text(const std::string& text, const std::string& path) {
  const json document = parse_json_or_discard(text);
  if (!document.is_object()) {
    return Error{ErrorCode::kInvalidArgument, path + " is not a JSON object"};
  }
  Keys keys(document);
  const std::string type = keys.text_or("model_type", "");
  if (type != "llama" && type != "gpt2") {
    keys.refuse("model_type", "expected llama or gpt2, found \"" + type + "\"");
  }
  HfConfig config = type == "gpt2" ? read_gpt(keys, document) : read_llama(keys, document);
  config.dtype = keys.text_or(keys.has("dtype") ? "dtype" : "torch_dtype", "");
  if (keys.problem().empty()) return config;
  return Error{ErrorCode::kInvalidArgument, path + ": " + keys.problem()};
}

}  // namespace hpctl
