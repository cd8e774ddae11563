// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/model.h"

#include "common/base/check.h"
#include "trainer/arch/gpt.h"
#include "trainer/arch/llama.h"

namespace hpctl {

Model::Loss Model::loss(const at::Tensor& logits, const at::Tensor& targets) const {
  const at::Tensor rows = logits.view({-1, logits.size(-1)});
  const at::Tensor entropy =
      at::nll_loss(at::log_softmax(rows, -1), targets.reshape({-1}), {}, at::Reduction::Sum);
  if (z_loss_ == 0) return {entropy, entropy};
  return {entropy, entropy + z_loss_ * at::logsumexp(rows, -1).square().sum()};
}

std::unique_ptr<Model> make_model(const ModelSpec& model, int64_t seq_len, at::ScalarType compute,
                                  double z_loss, at::Device device) {
  HP_CHECK(model.arch == "llama" || model.arch == "gpt");
  if (model.arch == "gpt") return std::make_unique<Gpt>(model, seq_len, compute, z_loss, device);
  return std::make_unique<Llama>(model, seq_len, compute, z_loss, device);
}

}  // namespace hpctl
