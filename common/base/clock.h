// SPDX-License-Identifier: Apache-2.0
// Time as an argument. Cores never see a Clock: the shell reads one and puts `now_ms` into events.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/wall_time.h"

namespace hpctl {

class Clock {
 public:
  virtual ~Clock() = default;
  // Milliseconds since an arbitrary origin; never goes back. Deadlines and durations use this.
  virtual int64_t monotonic_ms() const = 0;
  // Milliseconds since the Unix epoch; may jump. A label for people, never an input to decisions.
  virtual int64_t wall_ms() const = 0;
  WallTime wall() const { return WallTime(wall_ms()); }
};

class SystemClock final : public Clock {
 public:
  int64_t monotonic_ms() const override;
  int64_t wall_ms() const override;
};

// "2026-11-21T09:30:00.123Z"
std::string format_wall_ms(int64_t wall_ms);
// The same, and "unknown" where that is so.
std::string format_wall(WallTime time);
// "2026-11-21T09:30:00Z", or "unknown".
std::string format_wall_seconds(WallTime time);
// The inverse, also of a date alone or without milliseconds; 0 for all but 1970 to the year 9999.
int64_t parse_wall_ms(const std::string& text);

}  // namespace hpctl
