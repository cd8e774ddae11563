// SPDX-License-Identifier: Apache-2.0
// Causal attention within documents, where groups of query heads may share a key head.
// Shapes: B sequences, T tokens each, H = heads, K = kv_heads, G = H / K, h = head dimension.
#pragma once

#include <cstdint>

#include "common/base/job_spec.h"
#include "trainer/arch/documents.h"
#include "trainer/arch/recomputed.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

class CausalAttention {
 public:
  // For sequences of `seq_len` tokens; `compute` as in make_model().
  CausalAttention(const ModelSpec& model, int64_t seq_len, at::ScalarType compute,
                  at::Device device = at::kCPU);

  // q: [B, T, H, h]; k, v: [B, T, K, h] -> [B, T, H * h]
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const Documents& documents, Recomputed* recomputed = nullptr) const;

 private:
  at::Tensor whole(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   Recomputed* recomputed) const;

  at::ScalarType compute_;
  at::ScalarType wide_;
  int64_t group_;
  double scale_;
  bool fused_;       // by LibTorch's own kernel: on a GPU, in bf16 or fp16
  at::Tensor mask_;  // [T, T]: 0 where attention is allowed, -inf in the future
};

}  // namespace hpctl
