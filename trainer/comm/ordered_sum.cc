// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/ordered_sum.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "common/base/check.h"

namespace hpctl {

namespace {

// A part of the sum that stays in the first-level cache while it is made.
constexpr size_t kCacheFloats = 2048;

int whole_block(int ranks) { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks))); }

void add_blocks_of(int block, int size, int first, int end, int ranks, std::vector<int>& sizes) {
  const int block_end = std::min(block + size, ranks);
  if (block_end <= first || block >= end) return;
  if (block >= first && block_end <= end) {
    sizes.push_back(block_end - block);
    return;
  }
  const int half = size / 2;
  add_blocks_of(block, half, first, end, ranks, sizes);
  add_blocks_of(block + half, half, first, end, ranks, sizes);
}

// Adds [begin, begin + count) of all parts, at most kCacheFloats.
class Blocks {
 public:
  Blocks(std::span<const PartialSum> parts, int ranks, size_t begin, size_t count)
      : parts_(parts), ranks_(ranks), begin_(begin), count_(count) {}

  // The place of the sum of `size` ranks from `first` on: in a part, or in `room`, which is
  // followed by as much again for every level of blocks below.
  const float* sum(int first, int size, float* room) {
    const PartialSum& next = parts_[next_];
    if (next.ranks == std::min(size, ranks_ - first)) {
      ++next_;
      return next.numbers + begin_;
    }
    HP_CHECK(size > 1);
    const int half = size / 2;
    const float* left = sum(first, half, room);
    if (first + half >= ranks_) return left;
    const float* right = sum(first + half, half, room + kCacheFloats);
    for (size_t i = 0; i < count_; ++i) room[i] = left[i] + right[i];
    return room;
  }

 private:
  std::span<const PartialSum> parts_;
  int ranks_;
  size_t begin_;
  size_t count_;
  size_t next_ = 0;
};

}  // namespace

std::vector<int> blocks_between(int first, int end, int ranks) {
  HP_CHECK(first >= 0 && first < end && end <= ranks);
  std::vector<int> sizes;
  add_blocks_of(0, whole_block(ranks), first, end, ranks, sizes);
  return sizes;
}

void sum_in_pairs(std::span<const PartialSum> parts, size_t count, float* output) {
  int ranks = 0;
  for (const PartialSum& part : parts) ranks += part.ranks;
  HP_CHECK(ranks >= 1);
  const int size = whole_block(ranks);
  const auto levels = static_cast<size_t>(std::countr_zero(static_cast<unsigned>(size)));
  const auto room = std::make_unique_for_overwrite<float[]>((levels + 1) * kCacheFloats);
  for (size_t begin = 0; begin < count; begin += kCacheFloats) {
    const size_t n = std::min(kCacheFloats, count - begin);
    const float* sum = Blocks(parts, ranks, begin, n).sum(0, size, room.get());
    // Complete before it is stored: `output` may be one of the parts.
    std::copy_n(sum, n, output + begin);
  }
}

}  // namespace hpctl
