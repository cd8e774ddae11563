// SPDX-License-Identifier: Apache-2.0
// The addition of a reduction: in the order of ranks, whatever carried the numbers, so that every
// communicator on host memory gives the same bits.
#pragma once

#include <cstddef>
#include <span>

namespace hpctl {

// output[i] = parts[0][i] + parts[1][i] + ..., from left to right, for `count` numbers. There are
// at least two parts, and `output` may be one of them.
void sum_in_order(std::span<const float* const> parts, size_t count, float* output);

}  // namespace hpctl
