// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/adamw.h"

#include <cmath>

namespace hpctl {

AdamStep::AdamStep(const OptimizerSpec& spec, uint64_t step, double learning_rate,
                   double gradient_scale)
    : beta1(static_cast<float>(spec.beta1)),
      beta2(static_cast<float>(spec.beta2)),
      one_minus_beta1(static_cast<float>(1.0 - spec.beta1)),
      one_minus_beta2(static_cast<float>(1.0 - spec.beta2)),
      eps(static_cast<float>(spec.eps)),
      decay(static_cast<float>(1.0 - learning_rate * spec.weight_decay)),
      step_size(static_cast<float>(learning_rate /
                                   (1.0 - std::pow(spec.beta1, static_cast<double>(step))))),
      inverse_root_correction2(static_cast<float>(
          1.0 / std::sqrt(1.0 - std::pow(spec.beta2, static_cast<double>(step))))),
      gradient_scale(static_cast<float>(gradient_scale)) {}

void adamw(const AdamStep& s, bool decayed, int64_t count, const AdamSource& from,
           const AdamTarget& to) {
  const float* __restrict p = from.param;
  const float* __restrict m = from.exp_avg;
  const float* __restrict v = from.exp_avg_sq;
  const float* __restrict gradient = from.gradient;
  float* __restrict new_p = to.param;
  float* __restrict new_m = to.exp_avg;
  float* __restrict new_v = to.exp_avg_sq;
  const float decay = decayed ? s.decay : 1.0F;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * s.gradient_scale;
    const float next_m = s.beta1 * m[i] + s.one_minus_beta1 * g;
    const float next_v = s.beta2 * v[i] + s.one_minus_beta2 * g * g;
    const float denominator = std::sqrt(next_v) * s.inverse_root_correction2 + s.eps;
    new_m[i] = next_m;
    new_v[i] = next_v;
    new_p[i] = p[i] * decay - s.step_size * (next_m / denominator);
  }
}

}  // namespace hpctl
