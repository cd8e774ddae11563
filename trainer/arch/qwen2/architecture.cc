// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: Llama's layers with biases of queries, keys and values. transformers'
// Qwen2Config has no head_dim; its windows, which no published model uses, are refused.
#include "trainer/arch/llama/family.h"

namespace hpctl::qwen2 {
namespace {

constexpr llama::LayerParts kParts = {.qkv_biases = true};
constexpr const char* kClass = "Qwen2ForCausalLM";

std::vector<Block> layout(const ModelSpec& model) { return llama::layout(model, kParts); }

void read_config(HfKeys& keys, HfConfig& config) { llama::read_keys(keys, config, kClass); }

std::string config_text(const HfConfig& config) {
  nlohmann::ordered_json document = llama::document_of(config, kClass);
  document["use_sliding_window"] = false;
  return llama::text_of(document);
}

}  // namespace

extern const Architecture kArchitecture;
constinit const Architecture kArchitecture = llama::family(layout,
                                                           {.model_type = "qwen2",
                                                            .family = "Qwen2",
                                                            .base_prefix = "",
                                                            .read_config = read_config,
                                                            .config_text = config_text,
                                                            .is_constant = llama::is_constant},
                                                           kParts);

}  // namespace hpctl::qwen2
