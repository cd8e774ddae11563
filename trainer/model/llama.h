// SPDX-License-Identifier: Apache-2.0
// The Llama-3 architecture, block by block: token embedding, decoder layers (RMSNorm, causal
// grouped-query attention with rotary positions, SwiGLU), and head (RMSNorm, output projection,
// cross entropy). No biases. Names and order of the parameters are those of
// llama_layout(); rotary pairs are (i, i + head_dim / 2), as in Hugging Face checkpoints, so
// weights are never permuted on import or export.
//
// Pure functions of their arguments: the caller owns parameters, memory and the autograd graph.
// In bf16, norms, rotary positions, softmax and the loss are computed in fp32; in fp64 (for
// comparisons with other implementations) everything is.
//
// Shapes: B sequences, T tokens each, D = dim, H = heads, K = kv_heads, G = H / K, h = D / H.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/job_spec.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

class Llama {
 public:
  // `compute` is at::kFloat, at::kBFloat16 or at::kDouble, the type of parameters and activations.
  // `z_loss` as in LossSpec.
  Llama(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss = 0);

  // [B, T] int64 -> [B, T, D]
  at::Tensor embed(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens) const;
  // [B, T, D] -> [B, T, D]
  at::Tensor layer(const std::vector<at::Tensor>& parameters, const at::Tensor& x) const;
  // Parameters: the final norm and the output projection (the embedding where that is tied).
  // [B, T, D] -> logits [B, T, vocab], fp32 or fp64
  at::Tensor logits(const std::vector<at::Tensor>& parameters, const at::Tensor& x) const;
  // Sums over all tokens; `targets` is [B, T] int64.
  struct Loss {
    at::Tensor entropy;    // cross entropy: what is reported
    at::Tensor objective;  // what is minimised: that plus the z-loss
  };
  Loss loss(const at::Tensor& logits, const at::Tensor& targets) const;

 private:
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) const;
  at::Tensor rotate(const at::Tensor& x) const;
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

  ModelSpec model_;
  at::ScalarType compute_;
  at::ScalarType wide_;  // of norms, rotary positions, softmax and loss: fp32 or fp64
  double z_loss_;
  int64_t head_dim_;
  at::Tensor cos_;   // [T, 1, h]
  at::Tensor sin_;   // [T, 1, h]
  at::Tensor mask_;  // [G * T, T]: 0 where attention is allowed, -inf in the future
};

}  // namespace hpctl
