// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/attention_blocks.h"
#include "trainer/kernels/attention_levels.h"

namespace hpctl::kernels {

namespace {

struct Avx512 {
  static constexpr int kBytes = 64;
  static constexpr int kRows = 8;
};

using Blocks = AttentionBlocks<float, Avx512>;

}  // namespace

const AttentionPasses<float> kAttentionAvx512 = {Blocks::forward, Blocks::backward};

}  // namespace hpctl::kernels
