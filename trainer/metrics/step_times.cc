// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics/step_times.h"

namespace hpctl {

void StepTimes::begin(uint64_t step) {
  const double save = seconds(StepPart::kSave);
  seconds_.fill(0);
  seconds_[static_cast<size_t>(StepPart::kSave)] = save;
  began_ = last_ = Clock::now();
  trace_.begin_step(step);
}

void StepTimes::lap(StepPart part) {
  const Clock::time_point now = Clock::now();
  const auto index = static_cast<size_t>(part);
  const double elapsed = std::chrono::duration<double>(now - last_).count();
  seconds_[index] = part == StepPart::kSave ? elapsed : seconds_[index] + elapsed;
  total_[index] += elapsed;
  trace_.add("step", kStepPartNames[index], last_, now);
  last_ = now;
}

}  // namespace hpctl
