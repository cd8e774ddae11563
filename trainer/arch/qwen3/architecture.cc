// SPDX-License-Identifier: Apache-2.0
// Qwen3 (dense): Llama's layers with an RMSNorm of each head's query and key, one weight for all
// heads, and heads whose width does not follow from dim.
#include "trainer/arch/llama/family.h"

namespace hpctl::qwen3 {
namespace {

constexpr llama::LayerParts kParts = {.qk_norms = true};
constexpr const char* kClass = "Qwen3ForCausalLM";
constexpr int64_t kHeadDim = 128;  // Qwen3Config's default

std::vector<Block> layout(const ModelSpec& model) { return llama::layout(model, kParts); }

void read_config(HfKeys& keys, HfConfig& config) {
  llama::read_keys(keys, config, kClass, kHeadDim);
}

std::string config_text(const HfConfig& config) {
  nlohmann::ordered_json document = llama::document_of(config, kClass);
  document["attention_bias"] = false;
  document["use_sliding_window"] = false;
  return llama::text_of(document);
}

}  // namespace

extern const Architecture kArchitecture;
constinit const Architecture kArchitecture = llama::family(layout,
                                                           {.model_type = "qwen3",
                                                            .family = "Qwen3",
                                                            .base_prefix = "",
                                                            .read_config = read_config,
                                                            .config_text = config_text,
                                                            .is_constant = llama::is_constant},
                                                           kParts);

}  // namespace hpctl::qwen3
