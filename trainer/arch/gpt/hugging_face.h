// SPDX-License-Identifier: Apache-2.0
// For architecture.cc: its HuggingFaceForm.
#pragma once

#include <string>
#include <string_view>

#include "trainer/arch/hf_config.h"
#include "trainer/arch/hf_keys.h"

namespace hpctl::gpt {

void read_config(HfKeys& keys, HfConfig& config);
std::string config_text(const HfConfig& config);
bool is_constant(std::string_view tensor);

}  // namespace hpctl::gpt
