// SPDX-License-Identifier: Apache-2.0
// For how long a worker has shown nothing new.
#pragma once

#include <cstdint>

namespace hpctl::agent {

// The progress of one worker.
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
