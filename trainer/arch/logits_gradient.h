// SPDX-License-Identifier: Apache-2.0
// Where the gradient of logits lies: over the logits themselves. They are the largest array of a
// step where the vocabulary is large, the loss is the last that reads them, and each element of
// their gradient needs the element that it replaces. For the backward pass of a loss of ours.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include "trainer/compat/torch_compat.h"

namespace hpctl {

// In forward(): whether `logits` may be overwritten. A leaf, or a view of one, belongs to its
// maker; the result of an operation has no other user once the loss has read it.
inline void keep_whether_spent(torch::autograd::AutogradContext* context,
                               const at::Tensor& logits) {
  const bool is_lent = logits.is_view() ? logits._base().is_leaf() : logits.is_leaf();
  context->saved_data["spends"] = !is_lent;
}

// In backward(): of the size of `logits`, which are read no more than once where they are spent.
inline at::Tensor gradient_of_logits(torch::autograd::AutogradContext* context,
                                     const at::Tensor& logits) {
  if (!context->saved_data["spends"].toBool()) return at::empty_like(logits);
  TORCH_CHECK(context->saved_data.count("spent") == 0,
              "a loss of logits goes back once: their gradient has replaced them");
  context->saved_data["spent"] = true;
  return logits.detach();  // a gradient is no part of the graph
}

}  // namespace hpctl
