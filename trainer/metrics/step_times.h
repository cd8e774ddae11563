// SPDX-License-Identifier: Apache-2.0
// Where a step's time goes on the thread that steps: consecutive spans, each from the end of the
// one before. One thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "trainer/metrics/trace.h"

namespace hpctl {

enum class StepPart : uint8_t { kData, kCompute, kReduce, kOptimizer, kReport, kSave };
inline constexpr std::array<const char*, 6> kStepPartNames = {"data",      "compute", "reduce",
                                                              "optimizer", "report",  "save"};

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class StepTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // Spans also go to `trace`, which outlives this.
  explicit StepTimes(Trace& trace) : trace_(trace) {}

  // A step of this number begins now; all parts count from zero except kSave, whose time belongs to
  // the boundary before.
  void begin(uint64_t step);
  // The time since begin() or the last lap belongs to this part; a part may come more than once.
  void lap(StepPart part);

  double seconds(StepPart part) const { return seconds_[static_cast<size_t>(part)]; }
  // The sum over all steps so far.
  double total_seconds(StepPart part) const { return total_[static_cast<size_t>(part)]; }
  Clock::time_point began() const { return began_; }

 private:
  Trace& trace_;
  std::array<double, kStepPartNames.size()> seconds_{};
  std::array<double, kStepPartNames.size()> total_{};
  Clock::time_point began_;
  Clock::time_point last_;
};

}  // namespace hpctl
