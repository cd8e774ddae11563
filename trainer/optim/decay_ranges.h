// SPDX-License-Identifier: Apache-2.0
// Which parts of a shard an optimizer step treats alike.
#pragma once

#include <vector>

#include "trainer/parallel/block_layout.h"

namespace hpctl {

struct DecayRange {
  ElementRange range;  // of the block
  bool decayed = false;
};

// All of `shard`, ascending: tensor by tensor, each with the gap behind it, whose zeros stay zeros,
// and the padding behind the block. Those that are alike are not joined.
std::vector<DecayRange> decay_ranges(const Block& block, ElementRange shard);

}  // namespace hpctl
