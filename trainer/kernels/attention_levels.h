// SPDX-License-Identifier: Apache-2.0
// The alternatives of attention.cc: the same source, attention_blocks.h, at every level, and the
// one for matrix units.
#pragma once

#include "trainer/kernels/attention.h"

namespace hpctl::kernels {

template <typename T>
struct AttentionPasses {
  void (*forward)(const AttentionForward<T>& pass, const AttentionUnit& unit,
                  const AttentionScratch<T>& scratch);
  void (*backward)(const AttentionBackward<T>& pass, const AttentionUnit& unit,
                   const AttentionScratch<T>& scratch);
};

extern const AttentionPasses<float> kAttentionBaseline;
extern const AttentionPasses<double> kAttentionBaselineDouble;
extern const AttentionPasses<float> kAttentionAvx2;
extern const AttentionPasses<float> kAttentionAvx512;
extern const AttentionPasses<uint16_t> kAttentionAmx;
// The size of its scratch, which begins at a multiple of 64.
int64_t attention_amx_bytes(const AttentionShape& shape, int64_t tokens);

}  // namespace hpctl::kernels
