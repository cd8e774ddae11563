// SPDX-License-Identifier: Apache-2.0
// Whether a peer that sends signs of life, each with the time within which the next one comes, has
// stopped. If this process itself got no CPU time, the peer may have got none either: a paused
// virtual machine, or processes that Slurm suspends, have not hung. So time without observation
// does not count.
#pragma once

#include <cstdint>

namespace hpctl::agent {

// Times are monotonic milliseconds.
class SignsOfLife {
 public:
  // By so much a look is late where there was no turn for it.
  static constexpr int64_t kLateMs = 50;
  // For the next sign of one who gets turns again: longer than the pauses between them.
  static constexpr int64_t kTurnMs = 500;

  void seen(int64_t now_ms, int64_t next_within_ms) { look_at_ms_ = now_ms + next_within_ms; }
  // Stops watching.
  void forget() { look_at_ms_ = INT64_MAX; }

  // When to look; INT64_MAX = not while things stay.
  int64_t look_at_ms() const { return look_at_ms_; }
  // The look. After one that was late there is another.
  bool have_ceased(int64_t now_ms) {
    if (now_ms < look_at_ms_) return false;
    if (now_ms - look_at_ms_ < kLateMs) return true;
    look_at_ms_ = now_ms + kTurnMs;
    return false;
  }

 private:
  int64_t look_at_ms_ = INT64_MAX;
};

}  // namespace hpctl::agent
