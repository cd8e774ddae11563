// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step, as a function of the steps before it. Position k counts steps (the
// first is 1), or with unit samples the samples taken when the step is over; n is the last position
// of the job, s the size of its last step in the unit (1 for steps). With w = warmup_steps, d =
// decay_steps and r = min_lr_ratio:
//
//   k <= w      lr * k / w                                               (linear warm-up)
//   otherwise   lr * (r + (1 - r) * f(x))
//
//   cosine      f = (1 + cos(pi * x)) / 2,  x = (k - w) / (d + s), at most 1; without d, d = n - w
//   linear      f = 1 - x,                  x as above
//   constant    f = 1
//   wsd         f = 1 until n - d, then by `decay`: linear 1 - x, sqrt 1 - sqrt(x), cosine as
//   above,
//               x = (k - (n - d)) / (d + s)
//
// The divisors are one step longer than the divided range, so the last step still learns when r = 0
// (TorchTitan's "virtual last step"). Samples that were skipped count as taken.
#pragma once

#include <cstdint>

#include "common/job/job_spec.h"

namespace hpctl {

// `samples` = sample cursor at the end of step `step`.
double learning_rate(const TrainSpec& spec, uint64_t step, uint64_t samples);

}  // namespace hpctl
