// SPDX-License-Identifier: Apache-2.0
// Initial weights as a pure function of (seed, tensor name, element index): any rank of any world
// size computes just its own shard and all worlds start from the same bits
// (docs/decisions/0201-initial-values.md).
// Norms start from 1, biases from 0; of matrices each architecture tells the distribution
// (Architecture::initial), of adapters lora.h.
#pragma once

#include <cstdint>

#include "common/job/job_spec.h"
#include "common/layout/block_layout.h"
#include "common/layout/local_layout.h"

namespace hpctl {

// Writes elements `range` of the block's flat range to out[0 .. range.size()); gaps become 0. Uses
// at most `threads` threads; their number does not change a bit.
void fill_initial_values(const ModelSpec& model, const Block& block, uint64_t seed,
                         ElementRange range, float* out, int threads = 1);

// Writes the values of the part of `tensor`, of the block, that a tp rank has, to an array of its
// local shape. An element's value follows from its index in the global tensor, so it does not
// depend on the number of tp ranks.
void fill_initial_local(const ModelSpec& model, const Block& block, const TensorSlot& tensor,
                        uint64_t seed, const LocalTensor& local, float* out);

// The quantile function of the standard normal distribution for 0 < p < 1; relative error below
// 1.2e-9 (P. J. Acklam's rational approximation).
double normal_quantile(double p);

}  // namespace hpctl
