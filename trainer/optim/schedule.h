// SPDX-License-Identifier: Apache-2.0
// The learning rate of step k = 1 .. steps, with w = warmup_steps and r = min_lr_ratio:
//
//   k <= w   lr * k / w                                              (linear warm-up)
//   k >  w   lr * (r + (1 - r) * (1 + cos(pi * (k - w) / (steps + 1 - w))) / 2)
//
// The divisor is one more than the steps that follow the warm-up, so that the last step still
// learns when r = 0 (TorchTitan's "virtual last step").
#pragma once

#include <cstdint>

#include "common/base/job_spec.h"

namespace hpctl {

double learning_rate(const TrainSpec& spec, uint64_t step);

}  // namespace hpctl
