// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/clock_offsets.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace hpctl::agent {

void ClockOffsets::learn(int32_t node, int64_t sent_ms, int64_t there_ms) {
  const int64_t difference_ms = there_ms - sent_ms;
  const auto [known, is_new] = offsets_ms_.try_emplace(node, difference_ms);
  if (!is_new) known->second = std::min(known->second, difference_ms);
}

std::map<int32_t, int64_t> ClockOffsets::far_off_ms() const {
  std::map<int32_t, int64_t> far;
  if (offsets_ms_.size() < 2) return far;
  std::vector<int64_t> sorted;
  for (const auto& [node, offset_ms] : offsets_ms_) sorted.push_back(offset_ms);
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [node, offset_ms] : offsets_ms_) {
    // The middle of the others, which are `sorted` without one of this node's value.
    const auto own = static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), offset_ms) -
                                         sorted.begin());
    const size_t middle = (sorted.size() - 2) / 2;
    const int64_t ahead_ms = offset_ms - sorted[middle < own ? middle : middle + 1];
    if (std::abs(ahead_ms) >= kMuchClockOffsetMs) far[node] = ahead_ms;
  }
  return far;
}

}  // namespace hpctl::agent
