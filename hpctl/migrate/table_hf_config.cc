// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face model. Names and defaults: the configuration classes of Llama,
// Qwen2, Qwen3, Mistral and GPT-2 in transformers.
#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

// Llama 3.1's is the only one here.
void take_rope_type(const Given& given, const Document&, Draft& draft) {
  if (is_one_of(given.text, "default|null")) return draft.report(kUnneeded, given, "no scaling");
  if (given.text == "llama3")
    return draft.report(kTaken, given, "workload.train.model.rope_scaling");
  draft.report(kImpossible, given, "rope_scaling is Llama 3.1's, of type llama3");
}

void take_window(const Given& given, const Document& document, Draft& draft) {
  if (document.text_of("use_sliding_window") == "false") {
    return draft.report(kUnneeded, given, "without effect, as use_sliding_window is false");
  }
  if (document.text_of("model_type") != "mistral") {
    return draft.report(kImpossible, given, "arch mistral alone has a sliding window");
  }
  draft.set("workload.train.model.sliding_window", given.text, given);
  draft.report(kTaken, given, "workload.train.model.sliding_window: " + given.text);
}

void take_rope_theta(const Given& given, const Document& document, Draft& draft) {
  const bool is_nested = !document.text_of("rope_parameters.rope_theta").empty();
  if (document.text_of("model_type") == "gpt2" || (given.is_default && is_nested)) {
    return draft.report(kUnneeded, given, "without effect in this model");
  }
  draft.set("workload.train.model.rope_theta", given.text, given);
  draft.report(kTaken, given, "workload.train.model.rope_theta: " + given.text);
}

void finish_hf_config(const Document& d, Draft& draft) {
  const bool is_gpt = d.text_of("model_type") == "gpt2";
  Given rule = {"", "", {}, "default of transformers", true};
  const std::string heads = d.text_of(is_gpt ? "n_head" : "num_attention_heads");
  if (!heads.empty()) draft.set("workload.train.model.kv_heads", heads, rule);
  if (d.text_of("model_type") == "mistral" && d.text_of("sliding_window").empty()) {
    draft.set("workload.train.model.sliding_window", "4096", rule);
  }
  const auto dim = number_of(d.text_of("n_embd"));
  if (is_gpt && dim) draft.set("workload.train.model.ffn", number_text(4 * *dim), rule);
  draft.set("workload.train.model.norm_eps", is_gpt ? "1e-5" : "1e-6", rule);
  draft.set("workload.train.model.tied_embeddings", is_gpt ? "true" : "false", rule);
}

constexpr std::string_view kNoDropout = "the built-in trainer has no dropout";
constexpr std::string_view kTokenIds = "the tokenizer has them";
constexpr std::string_view kInference = "for inference";
constexpr std::string_view kNoBias = "the architecture decides about biases";

// clang-format off
constexpr Row kHfConfigRows[] = {
    unneeded("architectures", "model_type decides"),
    {.key = "model_type", .ours = "workload.train.model.arch",
     .words = "llama=llama|qwen2=qwen2|qwen3=qwen3|mistral=mistral|gpt2=gpt"},
    {.key = "hidden_size", .ours = "workload.train.model.dim"},
    {.key = "num_hidden_layers", .ours = "workload.train.model.layers"},
    {.key = "num_attention_heads", .ours = "workload.train.model.heads"},
    {.key = "num_key_value_heads", .ours = "workload.train.model.kv_heads"},
    {.key = "head_dim", .ours = "workload.train.model.head_dim"},
    {.key = "intermediate_size", .ours = "workload.train.model.ffn"},
    {.key = "vocab_size", .ours = "workload.train.model.vocab"},
    {.key = "max_position_embeddings", .ours = "workload.train.model.max_positions"},
    {.key = "rms_norm_eps", .ours = "workload.train.model.norm_eps"},
    {.key = "layer_norm_epsilon", .ours = "workload.train.model.norm_eps"},
    {.key = "tie_word_embeddings", .ours = "workload.train.model.tied_embeddings",
     .words = "true=true|false=false"},
    {.key = "rope_theta", .ours = "workload.train.model.rope_theta", .initial = "10000",
     .take = take_rope_theta},
    {.key = "rope_scaling.rope_type", .ours = "workload.train.model.rope_scaling",
     .note = "llama3; others are not possible", .take = take_rope_type},
    {.key = "rope_scaling.type", .ours = "workload.train.model.rope_scaling",
     .note = "llama3; others are not possible", .take = take_rope_type},
    {.key = "rope_scaling.factor", .ours = "workload.train.model.rope_scaling.factor"},
    {.key = "rope_scaling.low_freq_factor",
     .ours = "workload.train.model.rope_scaling.low_freq_factor"},
    {.key = "rope_scaling.high_freq_factor",
     .ours = "workload.train.model.rope_scaling.high_freq_factor"},
    {.key = "rope_scaling.original_max_position_embeddings",
     .ours = "workload.train.model.rope_scaling.original_max_len"},
    {.key = "rope_parameters.rope_theta", .ours = "workload.train.model.rope_theta"},
    {.key = "rope_parameters.rope_type", .ours = "workload.train.model.rope_scaling",
     .note = "llama3; others are not possible", .take = take_rope_type},
    {.key = "rope_parameters.factor", .ours = "workload.train.model.rope_scaling.factor"},
    {.key = "rope_parameters.low_freq_factor",
     .ours = "workload.train.model.rope_scaling.low_freq_factor"},
    {.key = "rope_parameters.high_freq_factor",
     .ours = "workload.train.model.rope_scaling.high_freq_factor"},
    {.key = "rope_parameters.original_max_position_embeddings",
     .ours = "workload.train.model.rope_scaling.original_max_len"},
    impossible("partial_rotary_factor", "the whole head is turned", "1|1.0"),
    {.key = "sliding_window", .ours = "workload.train.model.sliding_window", .take = take_window},
    impossible("use_sliding_window", "arch mistral alone has a sliding window", "false"),
    unneeded("max_window_layers", "a part of use_sliding_window"),
    unneeded("layer_types", "follows from sliding_window"),
    {.key = "hidden_act", .ours = "workload.train.model.arch", .note = "of SwiGLU",
     .words = "silu="},
    {.key = "activation_function", .ours = "workload.train.model.arch",
     .note = "GELU in its tanh form", .words = "gelu_new=|gelu_pytorch_tanh="},
    impossible("attention_bias", kNoBias, "false"),
    impossible("mlp_bias", kNoBias, "false"),
    {.key = "attention_dropout", .fate = kChanged, .note = kNoDropout, .off = "0|0.0"},
    {.key = "n_embd", .ours = "workload.train.model.dim"},
    {.key = "n_layer", .ours = "workload.train.model.layers"},
    {.key = "n_head", .ours = "workload.train.model.heads"},
    {.key = "n_inner", .ours = "workload.train.model.ffn"},
    {.key = "n_positions", .ours = "workload.train.model.max_positions"},
    unneeded("n_ctx", "n_positions says it"),
    {.key = "attn_pdrop", .fate = kChanged, .note = kNoDropout, .off = "0|0.0"},
    {.key = "embd_pdrop", .fate = kChanged, .note = kNoDropout, .off = "0|0.0"},
    {.key = "resid_pdrop", .fate = kChanged, .note = kNoDropout, .off = "0|0.0"},
    impossible("scale_attn_weights", "scores are scaled by the root of the head's width", "true"),
    impossible("scale_attn_by_inverse_layer_idx",
               "scores are scaled by the root of the head's width", "false"),
    unneeded("reorder_and_upcast_attn", "the softmax is fp32"),
    unneeded("summary_activation", "of other tasks"),
    unneeded("summary_first_dropout", "of other tasks"),
    unneeded("summary_proj_to_labels", "of other tasks"),
    unneeded("summary_type", "of other tasks"),
    unneeded("summary_use_proj", "of other tasks"),
    unneeded("task_specific_params", kInference),
    {.key = "initializer_range", .fate = kChanged,
     .note = "the built-in trainer has its own initial weights"},
    unneeded("pretraining_tp", kInference),
    unneeded("use_cache", kInference),
    unneeded("bos_token_id", kTokenIds),
    unneeded("eos_token_id", kTokenIds),
    unneeded("pad_token_id", kTokenIds),
    unneeded("torch_dtype", "of the stored weights; precision is of the computation"),
    unneeded("dtype", "of the stored weights; precision is of the computation"),
    unneeded("transformers_version", "of the program that wrote the file"),
    unneeded("_name_or_path", "weights come from `hpctl checkpoint import`"),
    impossible("auto_map", "code of the model's own"),
    impossible("quantization_config", "weights are bf16 or fp32"),
    impossible("num_experts", "the built-in trainer has no experts"),
    impossible("num_local_experts", "the built-in trainer has no experts"),
};
// clang-format on

}  // namespace

const Tool& hf_config_tool() {
  static const Tool tool = {
      "Hugging Face model", "config.json", kHfConfigRows, {}, finish_hf_config};
  return tool;
}

}  // namespace hpctl::migrate
