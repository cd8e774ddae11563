// SPDX-License-Identifier: Apache-2.0
// The Llama-3 architecture: decoder layers of RMSNorm, causal grouped-query attention with rotary
// positions, and SwiGLU. No biases. Names and order of the parameters are those of llama_layout();
// rotary pairs are (i, i + head_dim / 2), as in Hugging Face checkpoints, so weights are never
// permuted on import or export.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/arch/attention.h"
#include "trainer/arch/model.h"

namespace hpctl {

class Llama : public Model {
 public:
  // As make_model().
  Llama(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss = 0,
        at::Device device = at::kCPU);

  at::Tensor embed(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens,
                   const Documents& documents) const override;
  at::Tensor layer(const std::vector<at::Tensor>& parameters, const at::Tensor& x,
                   const Documents& documents, Recomputed* recomputed) const override;
  at::Tensor logits(const std::vector<at::Tensor>& parameters, const at::Tensor& x) const override;

 private:
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, Recomputed* recomputed) const;
  at::Tensor rotate(const at::Tensor& x, const Documents& documents) const;

  ModelSpec model_;
  at::ScalarType compute_;
  at::ScalarType wide_;  // of norms, rotary positions and logits
  CausalAttention attention_;
  at::Tensor cos_;  // [T, 1, head_dim]
  at::Tensor sin_;  // [T, 1, head_dim]
};

}  // namespace hpctl
