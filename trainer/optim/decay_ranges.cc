// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/decay_ranges.h"

namespace hpctl {

std::vector<DecayRange> decay_ranges(const Block& block, ElementRange shard) {
  std::vector<DecayRange> ranges;
  const auto add = [&](ElementRange range, bool decayed) {
    const ElementRange part = intersect(shard, range);
    if (!part.empty()) ranges.push_back({part, decayed});
  };
  for (const TensorSlot& tensor : block.tensors) {
    add({tensor.offset, align_elements(tensor.offset + tensor.numel)}, !tensor.no_decay);
  }
  add({block.numel, shard.end}, false);
  return ranges;
}

}  // namespace hpctl
