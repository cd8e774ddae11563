// SPDX-License-Identifier: Apache-2.0
// A clock that a test moves by hand; other threads may read it meanwhile.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/clock.h"

namespace hpctl::test {

class HandClock final : public Clock {
 public:
  HandClock() = default;
  explicit HandClock(int64_t begin_ms) : now_ms(begin_ms) {}
  int64_t monotonic_ms() const override { return now_ms; }
  int64_t wall_ms() const override { return now_ms + ahead_ms; }
  std::atomic<int64_t> now_ms{1'000'000};
  int64_t ahead_ms = 0;  // of the wall clock
};

}  // namespace hpctl::test
