// SPDX-License-Identifier: Apache-2.0
#include "agent/core/respawn.h"

#include <algorithm>

namespace hpctl::agent {

std::optional<int64_t> RespawnPolicy::pause_after(int64_t lived_ms, bool hung) {
  if (lived_ms >= kLifeWithoutHangMs) hung_lives_ = 0;
  if (hung && ++hung_lives_ > kMaxHungLives) return std::nullopt;
  if (lived_ms >= kUsefulLifeMs) short_lives_ = 0;
  if (++short_lives_ > max_short_lives_) return std::nullopt;
  return std::min(kLongestPauseMs, kFirstPauseMs << std::min(short_lives_ - 1, 16));
}

}  // namespace hpctl::agent
