// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/blend_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"

namespace hpctl {
namespace {

std::vector<uint64_t> whole_counts(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> counts;
  std::vector<std::pair<double, size_t>> remainders;
  uint64_t given = 0;
  for (size_t d = 0; d < weights.size(); ++d) {
    const double exact = weights[d] / sum * static_cast<double>(BlendOrder::kPeriod);
    counts.push_back(std::min(static_cast<uint64_t>(exact), BlendOrder::kPeriod - given));
    given += counts.back();
    remainders.emplace_back(std::floor(exact) - exact, d);
  }
  std::sort(remainders.begin(), remainders.end());  // largest first, then by position
  for (size_t i = 0; given < BlendOrder::kPeriod; i = (i + 1) % remainders.size(), ++given) {
    ++counts[remainders[i].second];
  }
  return counts;
}

}  // namespace

BlendOrder::BlendOrder(std::span<const double> weights) : counts_(whole_counts(weights)) {
  HP_CHECK(!weights.empty() && weights.size() <= kMaxSources);
  if (weights.size() == 1) return;
  std::vector<uint64_t> taken(counts_.size(), 0);
  for (uint64_t slot = 0; slot < kPeriod; ++slot) {
    // Whole numbers, so that every machine gives the same order.
    const auto behind = [&](size_t d) {
      return static_cast<int64_t>(counts_[d] * (slot + 1)) -
             static_cast<int64_t>(taken[d] * kPeriod);
    };
    size_t best = counts_.size();
    for (size_t d = 0; d < counts_.size(); ++d) {
      if (taken[d] == counts_[d]) continue;
      if (best == counts_.size() || behind(d) > behind(best)) best = d;
    }
    source_.push_back(static_cast<uint8_t>(best));
    before_.push_back(static_cast<uint16_t>(taken[best]++));
  }
}

BlendOrder::Place BlendOrder::operator()(uint64_t sample) const {
  if (source_.empty()) return {0, sample};
  const uint64_t slot = sample % kPeriod;
  const size_t source = source_[slot];
  return {source, sample / kPeriod * counts_[source] + before_[slot]};
}

}  // namespace hpctl
