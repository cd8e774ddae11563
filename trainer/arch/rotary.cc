// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hpctl {

std::vector<double> rotary_frequencies(const ModelSpec& model) {
  const int64_t head_dim = model.head_size();
  const RopeScalingSpec& s = model.rope_scaling;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim; i += 2) {
    double frequency =
        std::pow(model.rope_theta, static_cast<double>(i) / -static_cast<double>(head_dim));
    if (s.factor != 0) {
      const double turns =
          static_cast<double>(s.original_max_len) * frequency / (2 * std::numbers::pi);
      const double kept = std::clamp(
          (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
      frequency *= kept + (1.0 - kept) / s.factor;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace hpctl
