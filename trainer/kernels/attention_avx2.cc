// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/attention_blocks.h"
#include "trainer/kernels/attention_levels.h"

namespace hpctl::kernels {

namespace {

struct Avx2 {
  static constexpr int kBytes = 32;
  static constexpr int kRows = 4;
};

using Blocks = AttentionBlocks<float, Avx2>;

}  // namespace

const AttentionPasses<float> kAttentionAvx2 = {Blocks::forward, Blocks::backward};

}  // namespace hpctl::kernels
