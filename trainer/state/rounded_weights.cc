// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/rounded_weights.h"

namespace hpctl {

RoundedWeights::RoundedWeights(Device& device, const ArenaGeometry& geometry) : device_(device) {
  for (const int64_t capacity : geometry.block_capacity) {
    blocks_.emplace_back(device, static_cast<size_t>(capacity));
  }
}

WeightShards RoundedWeights::shards(StateArena& arena, int slot) {
  WeightShards shards;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (outdated_) {
      device_.round_to_bf16(arena.state(slot, StateKind::kParam, b), block(b),
                            static_cast<int64_t>(blocks_[b].size()));
    }
    shards.push_back({.values = block(b), .rounded = true});
  }
  outdated_ = false;
  return shards;
}

}  // namespace hpctl
