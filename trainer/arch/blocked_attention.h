// SPDX-License-Identifier: Apache-2.0
// trainer/kernels/attention.h as an operation with a gradient. Autograd keeps the operands, the
// result and a number per query and head. bf16 and fp16 are computed in fp32, and what is returned
// is rounded once; bf16 where bf16_products() says so on matrix units, as attention.h tells.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/compat/torch_compat.h"

namespace hpctl {

// Cosines and sines of the angles by which queries and keys are turned, [positions, h / 2], fp64
// for operands of fp64 and else fp32; undefined where they are not turned.
struct RotaryAngles {
  at::Tensor cos;
  at::Tensor sin;
};

struct AttentionRule {
  double scale;    // of the scores
  int64_t window;  // keys that a query sees at most, its own included
};

// q: [B, T, H, h]; k, v: [B, T, K, h], K divides H -> [B, T, H * h]. All on the CPU and of one
// floating type. `lengths` of the documents as in Documents; empty: every sequence is one. The
// same bits with any number of threads.
at::Tensor blocked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<int64_t>& lengths, const AttentionRule& rule,
                             const RotaryAngles& rotary);

}  // namespace hpctl
