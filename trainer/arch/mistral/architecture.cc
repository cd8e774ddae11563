// SPDX-License-Identifier: Apache-2.0
// Mistral: Llama's layers, in all of which attention may have a sliding window (7B v0.1: 4096
// tokens; later ones none). A window of W: token i attends to tokens i - W + 1 to i, as
// transformers' masking_utils.py has it.
#include "trainer/arch/llama/family.h"

namespace hpctl::mistral {
namespace {

constexpr const char* kClass = "MistralForCausalLM";
constexpr int64_t kWindow = 4096;  // MistralConfig's default

std::vector<Block> layout(const ModelSpec& model) { return llama::layout(model, {}); }

void read_config(HfKeys& keys, HfConfig& config) {
  llama::read_keys(keys, config, kClass);
  // Here absent and null differ: null is none.
  const bool said = keys.document().contains("sliding_window");
  config.model.sliding_window = keys.size_or("sliding_window", said ? 0 : kWindow);
}

std::string config_text(const HfConfig& config) {
  nlohmann::ordered_json document = llama::document_of(config, kClass);
  const int64_t window = config.model.sliding_window;
  document["sliding_window"] = window > 0 ? nlohmann::ordered_json(window) : nullptr;
  return llama::text_of(document);
}

}  // namespace

extern const Architecture kArchitecture;
constinit const Architecture kArchitecture =
    llama::family(layout, {.model_type = "mistral",
                           .family = "Mistral",
                           .base_prefix = "",
                           .read_config = read_config,
                           .config_text = config_text,
                           .is_constant = llama::is_constant});

}  // namespace hpctl::mistral
