// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/model.h"

#include "common/base/check.h"
#include "trainer/arch/gpt.h"
#include "trainer/arch/llama.h"
#include "trainer/arch/targets.h"

namespace hpctl {

Model::Loss Model::loss(const at::Tensor& logits, const at::Tensor& targets) const {
  const at::Tensor rows = logits.view({-1, logits.size(-1)});
  const at::Tensor labels = targets.reshape({-1});
  const at::Tensor entropy =
      at::nll_loss(at::log_softmax(rows, -1), labels, {}, at::Reduction::Sum, kNotCounted);
  if (z_loss_ == 0) return {entropy, entropy};
  const at::Tensor squares = at::logsumexp(rows, -1).square() * labels.ne(kNotCounted);
  return {entropy, entropy + z_loss_ * squares.sum()};
}

std::unique_ptr<Model> make_model(const ModelSpec& model, int64_t seq_len, at::ScalarType compute,
                                  double z_loss, at::Device device) {
  HP_CHECK(model.arch == "llama" || model.arch == "gpt");
  if (model.arch == "gpt") return std::make_unique<Gpt>(model, seq_len, compute, z_loss, device);
  return std::make_unique<Llama>(model, seq_len, compute, z_loss, device);
}

}  // namespace hpctl
