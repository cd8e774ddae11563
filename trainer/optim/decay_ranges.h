// SPDX-License-Identifier: Apache-2.0
// The parts of a shard with the same treatment in an optimizer step.
#pragma once

#include <vector>

#include "common/layout/block_layout.h"

namespace hpctl {

struct DecayRange {
  ElementRange range;  // of the block
  bool decayed = false;
};

// All of `shard`, ascending: tensor by tensor, each with the gap after it, whose zeros stay zeros,
// and the padding after the block. Equal neighbours are not joined.
std::vector<DecayRange> decay_ranges(const Block& block, ElementRange shard);

}  // namespace hpctl
