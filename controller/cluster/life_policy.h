// SPDX-License-Identifier: Apache-2.0
// The reaction to the end of a job's controller. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/job/job_files.h"
#include "controller/leadership/job_mode.h"

namespace hpctl::cluster {

// Returns whether it had nothing more to do: the job has its verdict, another controller has it, or
// Slurm will start it again and then request another. nullopt = only its parent could know: then it
// is started once more and reports that itself.
inline bool is_over(std::optional<int> exit_code) {
  if (!exit_code) return false;
  switch (*exit_code) {
    case kVerdictFinished:
    case kVerdictFailed:
    case kVerdictFailedForGood:
    case kExitUsage:
    case kExitSuperseded:
    case kExitRequeued:
      return true;
    default:
      return false;
  }
}

// Pauses before the next life: none after a long one, then doubling; after too many short lives in
// a row there is no next.
class LifePolicy {
 public:
  static constexpr int64_t kLongLifeMs = 60'000;
  static constexpr int64_t kFirstPauseMs = 100;
  static constexpr int64_t kLongestPauseMs = 30'000;
  static constexpr int kMaxShortLives = 10;

  std::optional<int64_t> ended(int64_t lived_ms) {
    if (lived_ms >= kLongLifeMs) short_lives_ = 0;
    if (++short_lives_ > kMaxShortLives) return std::nullopt;
    if (short_lives_ == 1) return 0;
    return std::min(kLongestPauseMs, kFirstPauseMs << (short_lives_ - 2));
  }

 private:
  int short_lives_ = 0;
};

}  // namespace hpctl::cluster
