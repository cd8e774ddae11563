// SPDX-License-Identifier: Apache-2.0
// Initial weights as a pure function of (seed, tensor name, element index): any rank of any world
// size computes just its own shard and all worlds start from the same bits
// (docs/decisions/0201-initial-values.md).
//
//   norms                          1
//   embed_tokens                   normal, std 1
//   lm_head, tied embed_tokens     normal, std dim^-1/2, truncated at 3 std
//   o_proj, up_proj, down_proj     normal, std 0.02 / sqrt(2 * (layer + 1))
//   other projections              normal, std 0.02
//
// (TorchTitan's Llama-3 rules; its cut of the projections at +-2, 100 std, never happens.) And gpt:
//
//   norms                          1
//   biases                         0
//   attn.c_proj, mlp.c_proj        normal, std 0.02 / sqrt(2 * layers)
//   other matrices, embeddings     normal, std 0.02
//
// (As Megatron-LM with --init-method-std 0.02, and GPT2LMHeadModel of transformers.)
#pragma once

#include <cstdint>

#include "common/base/job_spec.h"
#include "trainer/parallel/block_layout.h"

namespace hpctl {

// Writes elements `range` of the block's flat range to out[0 .. range.size()); gaps become 0.
void fill_initial_values(const ModelSpec& model, const Block& block, uint64_t seed,
                         ElementRange range, float* out);

// The quantile function of the standard normal distribution for 0 < p < 1; relative error below
// 1.2e-9 (P. J. Acklam's rational approximation).
double normal_quantile(double p);

}  // namespace hpctl
