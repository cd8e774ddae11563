// SPDX-License-Identifier: Apache-2.0
// What the kernel says about a process that does not move.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace hpctl::agent {

// The state letter of /proc/PID/stat (R running, S sleeping, D uninterruptible, T stopped, ...);
// "" when there is no such process.
std::string process_state(pid_t pid);

// For how long the progress of one worker has stood still.
class StillWatch {
 public:
  int64_t sampled(uint64_t step, uint64_t collective, int64_t now_ms) {
    if (moved_at_ms_ < 0 || step != step_ || collective != collective_) moved_at_ms_ = now_ms;
    step_ = step;
    collective_ = collective;
    return now_ms - moved_at_ms_;
  }

 private:
  uint64_t step_ = 0;
  uint64_t collective_ = 0;
  int64_t moved_at_ms_ = -1;
};

}  // namespace hpctl::agent
