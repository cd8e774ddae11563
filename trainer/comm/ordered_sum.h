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
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace hpctl {

// The sum of this many consecutive ranks, which form a block.
struct PartialSum {
  const float* numbers;
  int ranks = 1;
};

// The largest blocks within [first, end) of `ranks` ranks: how many ranks each has, in order.
std::vector<int> blocks_between(int first, int end, int ranks);

// output[i] = the sum of `count` numbers of every part. The parts belong to all ranks in order, or
// to a block of them; `output` may be the numbers of one of them.
void sum_in_pairs(std::span<const PartialSum> parts, size_t count, float* output);

}  // namespace hpctl
