// SPDX-License-Identifier: Apache-2.0
// The documents of a micro-batch, if neither attention nor positions may cross their borders
// (job.yaml's data.mask: documents). Attention then runs document by document, or over all of them
// in one call that gets the borders (packed_attention.h). Neither needs a mask for each
// micro-batch, and both cost the sum of the squares of the documents' lengths instead of the square
// of the sequence's (docs/decisions/1203-attention-per-document.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/compat/torch_compat.h"

namespace hpctl {

struct Documents {
  // Tokens of each document or part of one, in the order of the B * T tokens of the micro-batch,
  // each within one sequence; they sum to B * T. Empty: every sequence is one document.
  std::vector<int64_t> lengths;
  // The rest is undefined where `lengths` is empty.
  at::Tensor positions;  // [B, T] int64: of each token in its document
  at::Tensor borders;    // [documents + 1] int32: the first token of each, and B * T
  int64_t longest = 0;   // of `lengths`

  bool empty() const { return lengths.empty(); }
  // The same with its tensors where the model computes: once for a micro-batch, and no wait.
  Documents on(const std::string& device) const {
    if (empty()) return {};
    return {lengths, compat::to_device(positions, device), compat::to_device(borders, device),
            longest};
  }
};

// `positions` [B, T] begin again with 0 at every document and at every sequence.
Documents documents_at(const at::Tensor& positions);

}  // namespace hpctl
