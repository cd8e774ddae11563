// SPDX-License-Identifier: Apache-2.0
// AdamW with decoupled weight decay (Loshchilov, Hutter 2019), elementwise in T = float (or double,
// for comparisons with other implementations), out of place. It reads one slot of the state arena
// and writes the other, so the old state stays a valid snapshot until the new one is sealed. In the
// arithmetic order of PyTorch:
//
//   p = p * (1 - lr * weight_decay)
//   m = beta1 * m + (1 - beta1) * g          v = beta2 * v + (1 - beta2) * g * g
//   p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// g is the gradient times `gradient_scale` (the clip factor). The bits are the same on every
// processor (trainer/kernels/optimizer.h, which also has sources and targets). Values in bf16 are
// widened first and rounded stochastically last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/job/job_spec.h"
#include "trainer/kernels/optimizer.h"

namespace hpctl {

// The factors of one step, the same for all elements. `step` counts from 1.
struct AdamStep {
  AdamStep(const OptimizerSpec& spec, uint64_t step, double learning_rate, double gradient_scale);

  double number;  // of the step
  double learning_rate, weight_decay;
  double beta1, beta2, eps;
  double decay;      // 1 - lr * weight_decay
  double step_size;  // lr / (1 - beta1^t)
  double inverse_root_correction2;
  double gradient_scale;
};

// The kernel's factors of it.
template <typename T>
AdamFactors<T> adam_factors(const AdamStep& step, bool decayed) {
  return {.beta1 = static_cast<T>(step.beta1),
          .beta2 = static_cast<T>(step.beta2),
          .one_minus_beta1 = static_cast<T>(1.0 - step.beta1),
          .one_minus_beta2 = static_cast<T>(1.0 - step.beta2),
          .eps = static_cast<T>(step.eps),
          .decay = static_cast<T>(decayed ? step.decay : 1.0),
          .step_size = static_cast<T>(step.step_size),
          .inverse_root_correction2 = static_cast<T>(step.inverse_root_correction2),
          .gradient_scale = static_cast<T>(step.gradient_scale)};
}

// For elements of block number `block`, from place `first` in it on, at this step of a job with
// this seed.
RandomBits random_bits(uint64_t seed, const AdamStep& step, size_t block, int64_t first);

// Elements [0, count). Source and target must not overlap. `decayed` = false leaves out the first
// line above (norms; see TensorSlot::no_decay).
void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<float>& from,
           const AdamTarget<float>& to);
void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
           const AdamSource<float, uint16_t>& from, const AdamTarget<float, uint16_t>& to);
void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
           const AdamSource<float, uint16_t, uint16_t>& from,
           const AdamTarget<float, uint16_t, uint16_t>& to);
void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<double>& from,
           const AdamTarget<double>& to);

}  // namespace hpctl
