// SPDX-License-Identifier: Apache-2.0
// The greatest numbers that hpctl believes from a worker's progress block, an agent or a file. A
// greater one is damage or malice, and its reader reports it and does not use it. Below these
// limits there is room for one more, for a sum, and for nanoseconds in a signed number.
#pragma once

#include <cstdint>

namespace hpctl {

inline constexpr uint64_t kMaxGeneration = 1'000'000'000'000;
// Steps of training, and other things that a worker counts.
inline constexpr uint64_t kMaxStep = 1'000'000'000'000'000;
inline constexpr uint64_t kMaxDurationNs = 1'000'000'000'000'000'000;  // 31 years
// A point in time, since 1970: the year 2255. A duration's limit is too low here; it is 2001.
inline constexpr uint64_t kMaxUnixNs = 9'000'000'000'000'000'000;
inline constexpr int64_t kMaxRestartsRecorded = 1'000'000;

}  // namespace hpctl
