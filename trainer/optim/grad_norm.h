// SPDX-License-Identifier: Apache-2.0
// The global gradient norm over shards, and clipping by it. Each rank sums the squares of its shard
// in fp64 in a fixed order; the ranks' sums are added in rank order (Communicator::all_reduce).
#pragma once

#include <cstdint>

namespace hpctl {

// Sum of squares in fp64. The order of addition depends on `count` alone, and is the same on every
// processor (trainer/kernels/optimizer.h).
double sum_of_squares(const float* values, int64_t count);
double sum_of_squares(const double* values, int64_t count);

// Factor for the gradient: min(1, clip / (norm + 1e-6)); 1 when clip is 0 (off).
double clip_factor(double norm, double clip);

}  // namespace hpctl
