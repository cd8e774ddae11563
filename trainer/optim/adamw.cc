// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/adamw.h"

#include <cmath>

#include "common/base/rng.h"

namespace hpctl {

AdamStep::AdamStep(const OptimizerSpec& spec, uint64_t step, double learning_rate,
                   double gradient_scale)
    : number(static_cast<double>(step)),
      learning_rate(learning_rate),
      weight_decay(spec.weight_decay),
      beta1(spec.beta1),
      beta2(spec.beta2),
      eps(spec.eps),
      decay(1.0 - learning_rate * spec.weight_decay),
      step_size(learning_rate / (1.0 - std::pow(spec.beta1, static_cast<double>(step)))),
      inverse_root_correction2(1.0 /
                               std::sqrt(1.0 - std::pow(spec.beta2, static_cast<double>(step)))),
      gradient_scale(gradient_scale) {}

RandomBits random_bits(uint64_t seed, const AdamStep& step, size_t block, int64_t first) {
  const uint64_t of_step = mix64(mix64(seed) ^ static_cast<uint64_t>(step.number));
  const uint64_t of_block = mix64(of_step ^ static_cast<uint64_t>(block));
  return {static_cast<uint32_t>(of_block), static_cast<uint32_t>(of_block >> 32),
          static_cast<uint32_t>(first)};
}

void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<float>& from,
           const AdamTarget<float>& to) {
  optimizer_kernels<float>().adamw(adam_factors<float>(step, decayed), count, from, to);
}

void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
           const AdamSource<float, uint16_t>& from, const AdamTarget<float, uint16_t>& to) {
  optimizer_kernels<float>().adamw_bf16(adam_factors<float>(step, decayed), bits, count, from, to);
}

void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
           const AdamSource<float, uint16_t, uint16_t>& from,
           const AdamTarget<float, uint16_t, uint16_t>& to) {
  optimizer_kernels<float>().adamw_all_bf16(adam_factors<float>(step, decayed), bits, count, from,
                                            to);
}

void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<double>& from,
           const AdamTarget<double>& to) {
  optimizer_kernels<double>().adamw(adam_factors<double>(step, decayed), count, from, to);
}

}  // namespace hpctl
