// SPDX-License-Identifier: Apache-2.0
// AdamW with decoupled weight decay (Loshchilov, Hutter 2019), elementwise in T = float (or double,
// for comparisons with other implementations), out of place: it reads one slot of the state arena
// and writes the other, so the old state stays a valid snapshot until the new one is sealed. In the
// arithmetic order of PyTorch:
//
//   p = p * (1 - lr * weight_decay)
//   m = beta1 * m + (1 - beta1) * g          v = beta2 * v + (1 - beta2) * g * g
//   p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// g is the gradient times `gradient_scale` (the clip factor). Plain loops: the same bits whatever
// the vector width, because each operation is rounded once and contraction to FMA is off.
#pragma once

#include <cstdint>

#include "common/base/job_spec.h"

namespace hpctl {

// M is the type in which the moments are kept: T, or uint16_t for bf16 (rounded to nearest on the
// way into memory; the parameter moves by the unrounded ones).
template <typename T, typename M = T>
struct AdamSource {
  const T* param;
  const M* exp_avg;
  const M* exp_avg_sq;
  const T* gradient;
};

template <typename T, typename M = T>
struct AdamTarget {
  T* param;
  M* exp_avg;
  M* exp_avg_sq;
};

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

// Elements [0, count). Source and target must not overlap. `decayed` = false leaves out the first
// line above (norms; see TensorSlot::no_decay).
void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<float>& from,
           const AdamTarget<float>& to);
void adamw(const AdamStep& step, bool decayed, int64_t count,
           const AdamSource<float, uint16_t>& from, const AdamTarget<float, uint16_t>& to);
void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<double>& from,
           const AdamTarget<double>& to);

}  // namespace hpctl
