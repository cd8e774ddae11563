// SPDX-License-Identifier: Apache-2.0
// Which source of a weighted blend sample number i comes from: a pure function, like the order
// within a source (sample_order.h).
//
// Weights become whole counts that sum to one period of 65,536 samples (largest remainder). Within
// a period each slot goes to the source with the largest deficit against its weight, the earlier
// one on a tie, so any stretch of samples is close to the weights. Periods repeat: source d gets
// the samples period * count(d) + (its slots before this one).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hpctl {

class BlendOrder {
 public:
  static constexpr uint64_t kPeriod = 65536;
  static constexpr size_t kMaxSources = 256;

  // 1 to kMaxSources weights, all positive and finite.
  explicit BlendOrder(std::span<const double> weights);

  struct Place {
    size_t source = 0;
    uint64_t index = 0;  // number of the sample within the source
  };
  Place operator()(uint64_t sample) const;
  // Slots of a source in one period; 0 where its weight is below half of a 65,536th.
  uint64_t count(size_t source) const { return counts_[source]; }

 private:
  std::vector<uint64_t> counts_;
  std::vector<uint8_t> source_;   // of each slot; empty when there is one source
  std::vector<uint16_t> before_;  // slots of the same source before this one
};

}  // namespace hpctl
