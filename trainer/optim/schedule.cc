// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hpctl {

double learning_rate(const TrainSpec& spec, uint64_t step) {
  const double peak = spec.optimizer.lr;
  const auto k = static_cast<double>(step);
  const auto warmup = static_cast<double>(spec.schedule.warmup_steps);
  if (k <= warmup) return peak * k / warmup;
  const double length = std::max(1.0, static_cast<double>(spec.steps) + 1.0 - warmup);
  const double progress = std::min(1.0, (k - warmup) / length);
  const double floor = spec.schedule.min_lr_ratio;
  return peak * (floor + (1.0 - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace hpctl
