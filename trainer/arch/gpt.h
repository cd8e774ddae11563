// SPDX-License-Identifier: Apache-2.0
// The GPT-2 architecture, which GPT-3 and Megatron-LM's GPT share: learned positions added to the
// embedding; layers of LayerNorm, causal attention with as many key as query heads, LayerNorm and
// GELU in its tanh form (transformers' gelu_new, Megatron-LM's fused bias-GELU); biases everywhere
// but in the output projection; no dropout. Names, order and shapes of the parameters are those of
// gpt_layout(): Hugging Face's, so weights are never permuted on import or export.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/arch/attention.h"
#include "trainer/arch/model.h"

namespace hpctl {

class Gpt : public Model {
 public:
  // As make_model().
  Gpt(const ModelSpec& model, int64_t seq_len, at::ScalarType compute, double z_loss = 0,
      at::Device device = at::kCPU);

  at::Tensor embed(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens,
                   const Documents& documents) const override;
  at::Tensor layer(const std::vector<at::Tensor>& parameters, const at::Tensor& x,
                   const Documents& documents, Recomputed* recomputed) const override;
  at::Tensor logits(const std::vector<at::Tensor>& parameters, const at::Tensor& x) const override;

 private:
  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        Recomputed* recomputed) const;
  // Norm, projections and attention: [B, T, D], before the output projection.
  at::Tensor attend(const std::vector<at::Tensor>& parameters, const at::Tensor& x,
                    const Documents& documents, Recomputed* recomputed) const;

  ModelSpec model_;
  at::ScalarType wide_;  // of the logits
  CausalAttention attention_;
};

}  // namespace hpctl
