// SPDX-License-Identifier: Apache-2.0
// A shard's weights in bf16, on a GPU, beside parameters in fp32 (keeps_rounded_weights()). The
// optimizer writes them with the parameters, so no gather rounds anything. A group of one rank
// computes with them where they lie.
//
// Parameters that change in any other way outdate them; the next shards() rounds all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/layout/weight_shards.h"
#include "trainer/device/device.h"
#include "trainer/state/state_arena.h"

namespace hpctl {

class RoundedWeights {
 public:
  // Outdated. The device outlives it.
  RoundedWeights(Device& device, const ArenaGeometry& geometry);

  // Block b's part, block_capacity[b] elements.
  uint16_t* block(size_t b) const { return blocks_[b].data(); }
  void outdate() { outdated_ = true; }
  // The input of the gathers. `arena` is of that geometry and has its newest state in `slot`.
  WeightShards shards(StateArena& arena, int slot);

 private:
  Device& device_;
  std::vector<DeviceArray<uint16_t>> blocks_;
  bool outdated_ = true;
};

}  // namespace hpctl
