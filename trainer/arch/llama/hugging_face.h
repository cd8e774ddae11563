// SPDX-License-Identifier: Apache-2.0
// config.json of Llama, and of what descends from it in transformers: LlamaConfig, Qwen2Config,
// Qwen3Config and MistralConfig have most keys in common.
// Include from .cc files only: the JSON library is heavy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "trainer/arch/hf_config.h"
#include "trainer/arch/hf_keys.h"

namespace hpctl::llama {

// The common keys. `model_class` is the only one that "architectures" may name; `head_dim` the
// class's default, 0 = hidden_size / num_attention_heads.
void read_keys(HfKeys& keys, HfConfig& config, const char* model_class, int64_t head_dim = 0);
nlohmann::ordered_json document_of(const HfConfig& config, const char* model_class);
std::string text_of(const nlohmann::ordered_json& document);
bool is_constant(std::string_view tensor);

// Llama's own.
void read_config(HfKeys& keys, HfConfig& config);
std::string config_text(const HfConfig& config);

}  // namespace hpctl::llama
