// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer/data/batch_ramp.h"

namespace hpctl {

namespace {

double cosine(double x) { return 0.5 * (1.0 + std::cos(std::numbers::pi * x)); }

double decayed(DecayShape shape, double x) {
  if (shape == DecayShape::kLinear) return 1.0 - x;
  if (shape == DecayShape::kSqrt) return 1.0 - std::sqrt(x);
  return cosine(x);
}

}  // namespace

double learning_rate(const TrainSpec& spec, uint64_t step, uint64_t samples) {
  const ScheduleSpec& s = spec.schedule;
  const bool by_samples = s.unit == ScheduleUnit::kSamples;
  const auto steps = static_cast<uint64_t>(spec.steps);
  const auto k = static_cast<double>(by_samples ? samples : step);
  const auto last = static_cast<double>(by_samples ? samples_after(spec.batch, steps) : steps);
  const auto one = static_cast<double>(by_samples ? spec.batch.global : 1);
  const auto warmup = static_cast<double>(s.warmup_steps);
  const double peak = spec.optimizer.lr;
  if (k <= warmup) return peak * k / warmup;
  const auto decay = static_cast<double>(s.decay_steps);
  const auto progress = [&](double begin, double end) {
    return std::clamp((k - begin) / std::max(1.0, end + one - begin), 0.0, 1.0);
  };
  const double end = s.decay_steps > 0 ? warmup + decay : last;  // of cosine and linear
  double part = 1.0;
  if (s.name == ScheduleShape::kCosine) part = cosine(progress(warmup, end));
  if (s.name == ScheduleShape::kLinear) part = decayed(DecayShape::kLinear, progress(warmup, end));
  if (s.name == ScheduleShape::kWsd) {
    part = decayed(s.decay, progress(std::max(warmup, last - decay), last));
  }
  return peak * (s.min_lr_ratio + (1.0 - s.min_lr_ratio) * part);
}

}  // namespace hpctl
