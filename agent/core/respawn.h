// SPDX-License-Identifier: Apache-2.0
// When the holder restarts the agent proper: quickly after a long run, with growing pauses after
// short ones, and only a limited number of times.
#pragma once

#include <cstdint>
#include <optional>

namespace hpctl::agent {

class RespawnPolicy {
 public:
  static constexpr int64_t kUsefulLifeMs = 5'000;
  static constexpr int64_t kFirstPauseMs = 10;
  static constexpr int64_t kLongestPauseMs = 500;
  static constexpr int kMaxShortLives = 40;  // in a row; about 18 s of trying
  // A process that was ended because it hung: it may have been useful, but what makes it hang again
  // and again does not go away.
  static constexpr int64_t kLifeWithoutHangMs = 60'000;
  static constexpr int kMaxHungLives = 12;  // in a row; at least 18 s of trying

  explicit RespawnPolicy(int max_short_lives = kMaxShortLives)
      : max_short_lives_(max_short_lives) {}

  // The process has ended after `lived_ms`: pause before the next start; nullopt = give up.
  std::optional<int64_t> pause_after(int64_t lived_ms, bool hung = false);

 private:
  int max_short_lives_;
  int short_lives_ = 0;
  int hung_lives_ = 0;
};

}  // namespace hpctl::agent
