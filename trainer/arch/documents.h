// SPDX-License-Identifier: Apache-2.0
// Where the documents of a micro-batch lie, when neither attention nor positions may cross their
// borders (job.yaml's data.mask: documents). Attention then runs document by document, which
// needs no mask for each micro-batch and costs the sum of the squares of their lengths instead of
// the square of the sequence's (docs/decisions/1203-attention-per-document.md).
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
  at::Tensor positions;  // [B, T] int64: of each token in its document; undefined where `lengths`
                         // is empty

  bool empty() const { return lengths.empty(); }
  // The same with `positions` where the model computes.
  Documents on(const std::string& device) const {
    return {lengths, empty() ? positions : compat::to_device(positions, device)};
  }
};

// `positions` [B, T] begin again with 0 at every document and at every sequence.
Documents documents_at(const at::Tensor& positions);

}  // namespace hpctl
