// SPDX-License-Identifier: Apache-2.0
// What benchmarks make of what they have measured.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace hpctl::testing {

// Since the epoch, as metrics and histories have their times.
inline double now_ms() { return static_cast<double>(SystemClock().wall_ms()); }

// The smallest value that at least `share` (0 to 1) of all values do not exceed, that is the
// largest of fewer than 100 at 0.99. Precondition: there is one.
inline double at_share(std::vector<double> values, double share) {
  HP_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[std::max<size_t>(1, static_cast<size_t>(rank)) - 1];
}

inline double median(const std::vector<double>& values) { return at_share(values, 0.5); }

}  // namespace hpctl::testing
