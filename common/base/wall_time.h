// SPDX-License-Identifier: Apache-2.0
// A point in time by the wall clock, such as the end of a job. A duration is an integer whose name
// ends in _ms. Neither converts to the other, so code that mixes them does not compile. Two points
// have no difference by themselves: elapsed_ms() (common/job/time_account.h) gives none when one of
// them is unknown. A zero that stood for "unknown" was shown as an age of 498819 h.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

namespace hpctl {

class WallTime {
 public:
  constexpr WallTime() = default;  // unknown
  // Milliseconds since the Unix epoch. Unknown unless positive.
  constexpr explicit WallTime(int64_t unix_ms) : unix_ms_(std::max<int64_t>(0, unix_ms)) {}

  constexpr bool is_known() const { return unix_ms_ != 0; }
  // For files, messages and formats; 0 = unknown.
  constexpr int64_t unix_ms() const { return unix_ms_; }
  constexpr WallTime before(int64_t ms) const { return WallTime(unix_ms_ - ms); }
  constexpr WallTime after(int64_t ms) const { return WallTime(unix_ms_ + ms); }
  // An unknown point comes before all others.
  constexpr auto operator<=>(const WallTime&) const = default;

 private:
  int64_t unix_ms_ = 0;
};

}  // namespace hpctl
