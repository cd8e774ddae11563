// SPDX-License-Identifier: Apache-2.0
#include "common/layout/block_layout.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace hpctl {
int64_t shard_capacity(int64_t block_numel, int32_t world_size) {
  HP_CHECK(block_numel >= 0 && world_size >= 1);
  return align_elements((block_numel + world_size - 1) / world_size);
}

ElementRange shard_range(int64_t block_numel, int32_t rank, int32_t world_size) {
  HP_CHECK(rank >= 0 && rank < world_size);
  const int64_t capacity = shard_capacity(block_numel, world_size);
  return {std::min(rank * capacity, block_numel), std::min((rank + 1) * capacity, block_numel)};
}

ElementRange intersect(ElementRange a, ElementRange b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

void append_tensor(Block& block, std::string name, std::vector<int64_t> shape) {
  TensorSlot slot;
  slot.name = std::move(name);
  slot.offset = block.numel;
  slot.numel = 1;
  for (const int64_t extent : shape) slot.numel *= extent;
  slot.no_decay = shape.size() < 2;
  slot.shape = std::move(shape);
  block.numel = align_elements(slot.offset + slot.numel);
  block.tensors.push_back(std::move(slot));
}

int64_t parameter_count(const std::vector<Block>& blocks) {
  int64_t count = 0;
  for (const Block& block : blocks) {
    for (const TensorSlot& tensor : block.tensors) count += tensor.numel;
  }
  return count;
}

}  // namespace hpctl
