// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

namespace hpctl {

LossScaleRecord first_loss_scale(const TrainSpec& train) {
  if (train.precision != Precision::kFp16) return {};
  return {.scale = static_cast<uint64_t>(train.loss_scale.initial),
          .good_steps = 0,
          .hysteresis_left = static_cast<uint64_t>(train.loss_scale.hysteresis),
          .overflows = 0};
}

bool is_overflow(const LossScaleRecord& record, double loss, double grad_norm) {
  return record.scale > 0 && std::isfinite(loss) && !std::isfinite(grad_norm);
}

bool lower_loss_scale(const LossScaleSpec& spec, LossScaleRecord& record) {
  const auto lowest = static_cast<uint64_t>(spec.min);
  const bool halve = record.hysteresis_left <= 1;
  if (halve && record.scale <= lowest) return false;
  ++record.overflows;
  record.good_steps = 0;
  if (halve) {
    record.scale /= 2;
  } else {
    --record.hysteresis_left;
  }
  return true;
}

void remember_good_step(const LossScaleSpec& spec, LossScaleRecord& record) {
  if (record.scale == 0) return;
  if (++record.good_steps < static_cast<uint64_t>(spec.growth_interval)) return;
  record.good_steps = 0;
  record.hysteresis_left = static_cast<uint64_t>(spec.hysteresis);
  record.scale = std::min(record.scale * 2, static_cast<uint64_t>(kMaxLossScale));
}

}  // namespace hpctl
