// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/attention_blocks.h"
#include "trainer/kernels/attention_levels.h"

namespace hpctl::kernels {

namespace {

// SSE2 or NEON.
struct Baseline {
  static constexpr int kBytes = 16;
  static constexpr int kRows = 4;
};

using Blocks = AttentionBlocks<float, Baseline>;
using DoubleBlocks = AttentionBlocks<double, Baseline>;

}  // namespace

const AttentionPasses<float> kAttentionBaseline = {Blocks::forward, Blocks::backward};
const AttentionPasses<double> kAttentionBaselineDouble = {DoubleBlocks::forward,
                                                          DoubleBlocks::backward};

}  // namespace hpctl::kernels
