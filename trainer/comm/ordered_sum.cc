// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/ordered_sum.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <type_traits>

#include "common/base/check.h"
#include "trainer/kernels/bf16.h"

namespace hpctl {

namespace {

// A part of the sum that stays in the first-level cache while it is made.
constexpr size_t kCacheNumbers = 2048;

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

// bf16 as it lies in memory.
struct Bf16 {
  uint16_t bits;
};

float widened(Bf16 number) { return float_of_bf16(number.bits); }
template <typename Number>
Number widened(Number number) {
  return number;
}

template <typename Number>
void store(const Number* sum, size_t count, Number* output) {
  std::copy_n(sum, count, output);
}
void store(const float* sum, size_t count, Bf16* output) {
  for (size_t i = 0; i < count; ++i) output[i].bits = bf16_of(sum[i]);
}

// Adds [begin, begin + count) of all parts, at most kCacheNumbers, as `Sum`.
template <typename From, typename Sum>
class Blocks {
 public:
  Blocks(std::span<const PartialSum> parts, int ranks, size_t begin, size_t count)
      : parts_(parts), ranks_(ranks), begin_(begin), count_(count) {}

  // The place of the sum of `size` ranks from `first` on: in a part, or in `room`, which is
  // followed by as much again for every level of blocks below.
  const Sum* sum(int first, int size, Sum* room) {
    const PartialSum& next = parts_[next_];
    if (next.ranks == std::min(size, ranks_ - first)) {
      ++next_;
      return wide(static_cast<const From*>(next.numbers) + begin_, room);
    }
    HP_CHECK(size > 1);
    const int half = size / 2;
    const Sum* left = sum(first, half, room);
    if (first + half >= ranks_) return left;
    const Sum* right = sum(first + half, half, room + kCacheNumbers);
    for (size_t i = 0; i < count_; ++i) room[i] = left[i] + right[i];
    return room;
  }

 private:
  const Sum* wide(const From* numbers, Sum* room) const {
    if constexpr (std::is_same_v<From, Sum>) {
      return numbers;
    } else {
      for (size_t i = 0; i < count_; ++i) room[i] = widened(numbers[i]);
      return room;
    }
  }

  std::span<const PartialSum> parts_;
  int ranks_;
  size_t begin_;
  size_t count_;
  size_t next_ = 0;
};

template <typename From, typename To>
void sum_of(std::span<const PartialSum> parts, size_t count, To* output) {
  using Sum = decltype(widened(From{}));
  int ranks = 0;
  for (const PartialSum& part : parts) ranks += part.ranks;
  HP_CHECK(ranks >= 1);
  const int size = whole_block(ranks);
  const auto levels = static_cast<size_t>(std::countr_zero(static_cast<unsigned>(size)));
  const auto room = std::make_unique_for_overwrite<Sum[]>((levels + 1) * kCacheNumbers);
  for (size_t begin = 0; begin < count; begin += kCacheNumbers) {
    const size_t n = std::min(kCacheNumbers, count - begin);
    const Sum* sum = Blocks<From, Sum>(parts, ranks, begin, n).sum(0, size, room.get());
    // Complete before it is stored: `output` may be one of the parts.
    store(sum, n, output + begin);
  }
}

}  // namespace

size_t number_bytes(NumberType type) {
  switch (type) {
    case NumberType::kFp32:
      return sizeof(float);
    case NumberType::kBf16:
      return sizeof(Bf16);
    case NumberType::kFp64:
      return sizeof(double);
  }
  return 0;
}

std::vector<int> blocks_between(int first, int end, int ranks) {
  HP_CHECK(first >= 0 && first < end && end <= ranks);
  std::vector<int> sizes;
  add_blocks_of(0, whole_block(ranks), first, end, ranks, sizes);
  return sizes;
}

void sum_in_pairs(NumberType from, std::span<const PartialSum> parts, size_t count, NumberType to,
                  void* output) {
  if (from == NumberType::kFp64 || to == NumberType::kFp64) {
    HP_CHECK(from == to);
    return sum_of<double>(parts, count, static_cast<double*>(output));
  }
  if (from == NumberType::kFp32 && to == NumberType::kFp32) {
    return sum_of<float>(parts, count, static_cast<float*>(output));
  }
  if (from == NumberType::kFp32) return sum_of<float>(parts, count, static_cast<Bf16*>(output));
  if (to == NumberType::kFp32) return sum_of<Bf16>(parts, count, static_cast<float*>(output));
  sum_of<Bf16>(parts, count, static_cast<Bf16*>(output));
}

}  // namespace hpctl
