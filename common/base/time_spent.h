// SPDX-License-Identifier: Apache-2.0
// Where the time of a job's life went that was not training, in milliseconds. The parts exclude
// each other; what is left of the time since its submission was training, or whatever its program
// does.
#pragma once

#include <cstdint>

namespace hpctl {

struct TimeSpent {
  int64_t start_ms = 0;    // from its submission to its first step; 0 = it has made none
  int64_t notice_ms = 0;   // from the last step before a fault until the fault was known
  int64_t restart_ms = 0;  // from there to the first step of the next generation
  int64_t repeat_ms = 0;   // from there to the step that had been reached, or one beyond it

  int64_t lost_ms() const { return notice_ms + restart_ms + repeat_ms; }
  bool operator==(const TimeSpent&) const = default;
};

}  // namespace hpctl
