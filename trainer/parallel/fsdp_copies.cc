// SPDX-License-Identifier: Apache-2.0
// FullySharded's gradients of tensors that several tp ranks have (copied_gradients.h). A tensor
// lies at the same place of its block on all of them, and they have the same interval of it, so
// their shards hold the same elements of each copy.
#include <utility>

#include "trainer/parallel/copied_gradients.h"
#include "trainer/parallel/fsdp.h"

namespace hpctl {

namespace {

// The elements of a tensor that a shard has, counted within the shard.
ElementRange within(ElementRange shard, const TensorSlot& tensor) {
  const ElementRange common = intersect(shard, {tensor.offset, tensor.offset + tensor.numel});
  return {common.begin - shard.begin, common.end - shard.begin};
}

}  // namespace

ElementRange FullySharded::shard_of(size_t block) const {
  const int64_t elements = gradient_elements(block);
  return {elements * shard_rank_, elements * (shard_rank_ + 1)};
}

Outcome FullySharded::sum_gradients_of_copies() {
  std::vector<CopiedGradient> copied;
  for (size_t b = 0; b < local_.size(); ++b) {
    for (size_t t = 0; t < local_[b].tensors.size(); ++t) {
      const LocalTensor& own = local_[b].tensors[t];
      const ElementRange here = within(shard_of(b), local_[b].block.tensors[t]);
      if (own.copies == 1 || here.empty()) continue;
      const at::Tensor gradient = compat::tensor_over(reducer_.shard(b) + here.begin, here.size(),
                                                      at::kFloat, device_.name());
      copied.push_back({gradient, own.copies, own.copy});
    }
  }
  return rows_ ? sum_copies(*rows_, copied) : Outcome(Ok{});
}

std::vector<std::span<const float>> FullySharded::counted_gradients() const {
  std::vector<std::span<const float>> counted;
  for (size_t b = 0; b < shards_.size(); ++b) {
    if (local_.empty()) {
      counted.emplace_back(gradient(b), static_cast<size_t>(gradient_elements(b)));
      continue;
    }
    for (size_t t = 0; t < local_[b].tensors.size(); ++t) {
      const ElementRange here = within(shard_of(b), local_[b].block.tensors[t]);
      if (!counts_in_norm(local_[b].tensors[t]) || here.empty()) continue;
      counted.emplace_back(gradient(b) + here.begin, static_cast<size_t>(here.size()));
    }
  }
  return counted;
}

}  // namespace hpctl
