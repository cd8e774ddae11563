// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/model.h"

#include <array>
#include <utility>

#include "trainer/arch/fused_ops.h"
#include "trainer/arch/registry.h"
#include "trainer/arch/targets.h"

namespace hpctl {

#define HPCTL_DECLARE(name, forward, ...) \
  namespace forward {                     \
  MakeModel make_model;                   \
  }
HPCTL_ARCHITECTURES(HPCTL_DECLARE)
#undef HPCTL_DECLARE

at::Tensor Model::layer(const std::vector<at::Tensor>& parameters, const at::Tensor& x,
                        const Documents& documents, Recomputed* recomputed) const {
  const LayerCall call = {parameters, documents, recomputed};
  Tensors tensors = {x};
  for (const Segment& segment : segments()) tensors = segment.run(call, tensors);
  return std::move(tensors.front());
}

Model::Loss Model::loss(const at::Tensor& logits, const at::Tensor& targets) const {
  const bool as_they_are = has_fused_loss(logits.device(), logits.scalar_type());
  const at::Tensor taken = as_they_are ? logits : widened(logits);
  const at::Tensor rows = taken.view({-1, taken.size(-1)});
  const at::Tensor labels = targets.reshape({-1});
  if (has_fused_loss(rows.device(), rows.scalar_type())) {
    const FusedLoss fused = fused_cross_entropy(rows, labels, z_loss_);
    return {fused.entropy, fused.objective};
  }
  const at::Tensor entropy =
      at::nll_loss(at::log_softmax(rows, -1), labels, {}, at::Reduction::Sum, kNotCounted);
  if (z_loss_ == 0) return {entropy, entropy};
  const at::Tensor squares = at::logsumexp(rows, -1).square() * labels.ne(kNotCounted);
  return {entropy, entropy + z_loss_ * squares.sum()};
}

std::unique_ptr<Model> make_model(const TrainSpec& train, at::ScalarType compute,
                                  at::Device device) {
#define HPCTL_ADDRESS(name, forward, ...) &forward::make_model,
  static constexpr std::array<MakeModel*, kArchitectureTraits.size()> kMake = {
      HPCTL_ARCHITECTURES(HPCTL_ADDRESS)};
#undef HPCTL_ADDRESS
  return kMake[static_cast<size_t>(train.model.arch)](train, compute, device);
}

}  // namespace hpctl
