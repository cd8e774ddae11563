// SPDX-License-Identifier: Apache-2.0
// Written by generate.py with PyTorch 1.13.0a0; do not edit.
#pragma once

#include <array>
#include <utility>

namespace hpctl::testing {

inline constexpr std::array<double, 5> kGoldenLosses = {5.90489191196, 5.97566379891, 5.97594097853,
                                                        6.01490018903, 5.85675021208};
inline constexpr std::array<double, 5> kGoldenNorms = {
    0.845813070274, 0.836828343581, 0.840976937939, 0.840624347855, 0.831735875656};
// Tensor and the sum of its elements' absolute values after the last step.
inline constexpr std::array<std::pair<const char*, double>, 6> kGoldenSums = {{
    {"model.embed_tokens.weight", 13028.3332285},
    {"model.layers.0.self_attn.q_proj.weight", 72.3537804771},
    {"model.layers.1.mlp.down_proj.weight", 142.693045759},
    {"model.layers.1.input_layernorm.weight", 64.1164194793},
    {"model.norm.weight", 63.2811359914},
    {"lm_head.weight", 1578.9720503},
}};

}  // namespace hpctl::testing
