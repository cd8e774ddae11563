// SPDX-License-Identifier: Apache-2.0
// The greatest numbers that hpctl believes from a worker's progress block, an agent or a file. A
// greater one is damage or malice, and its reader reports it and does not use it. Below these
// limits there is room for one more, for a sum, and for nanoseconds in a signed number.
//
// A duration and a point in time are types of their own here. A limit of one does not apply to the
// other: the limit of durations lies in 2001, and cut every file's time to it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace hpctl {

inline constexpr uint64_t kMaxGeneration = 1'000'000'000'000;
// Steps of training, and other things that a worker counts.
inline constexpr uint64_t kMaxStep = 1'000'000'000'000'000;
inline constexpr int64_t kMaxRestartsRecorded = 1'000'000;

using Nanoseconds = std::chrono::nanoseconds;
using UnixTime = std::chrono::sys_time<Nanoseconds>;  // the epoch itself = unknown

inline constexpr Nanoseconds kMaxDuration{1'000'000'000'000'000'000};        // 31 years
inline constexpr UnixTime kMaxTime{Nanoseconds(9'000'000'000'000'000'000)};  // the year 2255

constexpr bool is_believable(Nanoseconds duration) {
  return duration >= Nanoseconds::zero() && duration <= kMaxDuration;
}
constexpr bool is_believable(UnixTime time) { return time >= UnixTime() && time <= kMaxTime; }

// From a number of nanoseconds on a page or in a message. What is too great stays implausible.
constexpr Nanoseconds duration_of(uint64_t ns) {
  return Nanoseconds(static_cast<int64_t>(std::min<uint64_t>(ns, INT64_MAX)));
}
constexpr UnixTime time_of(uint64_t unix_ns) { return UnixTime(duration_of(unix_ns)); }
// And back.
constexpr uint64_t ns_of(Nanoseconds duration) { return static_cast<uint64_t>(duration.count()); }
constexpr uint64_t unix_ns_of(UnixTime time) { return ns_of(time.time_since_epoch()); }

}  // namespace hpctl
