// SPDX-License-Identifier: Apache-2.0
// Frequencies of the rotary position embedding. Pair i of h / 2 turns by theta^(-2i/h) radians per
// token. Llama 3.1 scales them for longer contexts (rope_type "llama3" of Hugging Face
// transformers, modeling_rope_utils.py). The frequency of waves longer than original_max_len /
// low_freq_factor is divided by `factor`, and waves shorter than original_max_len /
// high_freq_factor stay. Between them the scaling is linear in original_max_len / wavelength.
#pragma once

#include <cstdint>
#include <vector>

#include "common/job/train_spec.h"

namespace hpctl {

// head_dim / 2 frequencies, radians per token.
std::vector<double> rotary_frequencies(const ModelSpec& model);

}  // namespace hpctl
