// SPDX-License-Identifier: Apache-2.0
// The time of a job's life that was not training, in milliseconds, by part. The parts exclude each
// other; the rest of the time since its submission was training, or the work of its program. A
// job's ranks train and wait together, so a part holds for each rank; the waits of a step differ
// from rank to rank, and count by their mean.
#pragma once

#include <cstdint>

namespace hpctl {

// Waits of the built-in trainer between its steps.
struct StepWaits {
  int64_t checkpoint_ms = 0;  // to copy what is saved, and for a save that was under way
  int64_t data_ms = 0;        // for samples

  bool operator==(const StepWaits&) const = default;
};

struct TimeSpent {
  int64_t start_ms = 0;      // from its submission to its first step; 0 = it has made none
  int64_t notice_ms = 0;     // from the last step before a fault until the fault was known
  int64_t restart_ms = 0;    // workers were started, until the next generation's first step
  int64_t repeat_ms = 0;     // from there to the step that had been reached, or one beyond it
  int64_t decide_ms = 0;     // workers were ended, and what to go on from was found and recorded
  int64_t wait_ms = 0;       // for nodes, in the queue again, and between attempts
  int64_t suspended_ms = 0;  // the scheduler had stopped all its processes
  StepWaits waits = {};      // of steps that were not repetitions

  int64_t lost_ms() const { return notice_ms + restart_ms + repeat_ms + decide_ms + wait_ms; }
  // All that was not training.
  int64_t total_ms() const {
    return start_ms + lost_ms() + suspended_ms + waits.checkpoint_ms + waits.data_ms;
  }
  bool operator==(const TimeSpent&) const = default;
};

}  // namespace hpctl
