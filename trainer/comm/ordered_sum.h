// SPDX-License-Identifier: Apache-2.0
// The addition of a reduction: in an order that depends on the number of ranks alone, not on the
// transport or the placement of ranks, so every communicator on host memory gives the same bits.
//
// Ranks are added in pairs, pairs in pairs, and so on; a block of 2^k ranks begins at a multiple of
// 2^k, and the last one may be short:
//
//   7 ranks     ((0 + 1) + (2 + 3)) + ((4 + 5) + 6)
//
// So the consecutive ranks of a node are a few whole blocks: one block if every node has 2^k ranks.
// A node can add each block by itself, and its sums go over the network instead of its ranks'
// numbers. A rounding error grows with the logarithm of the number of ranks (Higham, The accuracy
// of floating point summation, SIAM J. Sci. Comput. 14, 1993), and not with the number.
//
// bf16 is added in fp32 and rounded once, after the last addition. The sum of a node's ranks
// therefore travels as fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hpctl {

enum class NumberType : uint8_t { kFp32, kBf16, kFp64 };
size_t number_bytes(NumberType type);
// The type in which numbers of `type` are added.
constexpr NumberType sum_type(NumberType type) {
  return type == NumberType::kBf16 ? NumberType::kFp32 : type;
}

// The sum of this many consecutive ranks, which form a block.
struct PartialSum {
  const void* numbers;
  int ranks = 1;
};

// The largest blocks within [first, end) of `ranks` ranks: how many ranks each has, in order.
std::vector<int> blocks_between(int first, int end, int ranks);

// output[i] = the sum of `count` numbers of every part. The parts belong to all ranks in order, or
// to a block of them. `output` may be the numbers of one of them if `to` is `from`. The two types
// are the same, or fp32 and bf16.
void sum_in_pairs(NumberType from, std::span<const PartialSum> parts, size_t count, NumberType to,
                  void* output);

}  // namespace hpctl
