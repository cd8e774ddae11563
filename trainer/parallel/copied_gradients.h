// SPDX-License-Identifier: Apache-2.0
// The rule for tensors of which several tp ranks have a copy (local_layout.h): norms, biases after
// a sum, positions, key heads that ranks share, halves of adapters. Each copy gets a part of the
// gradient. The gradient is the sum of the parts in the order of ranks, every copy then has the
// same bits, and the first copy alone counts in the norm.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "common/layout/local_layout.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/parallel/row_exchange.h"

namespace hpctl {

struct CopiedGradient {
  at::Tensor gradient;  // contiguous; of the same shape on all tp ranks, and all of one type
  int32_t copies = 1;   // consecutive tp ranks that have it
  int32_t copy = 0;     // which of them this one is
};

// The sum of tensors in pairs, as trainer/comm/ordered_sum.h has it.
at::Tensor add_in_pairs(const std::vector<at::Tensor>& parts);

// Replaces each gradient by the sum over its copies, with one exchange for all. Each rank gives its
// copies of the same tensors in the same order.
Outcome sum_copies(RowExchange& exchange, const std::vector<CopiedGradient>& copied);

// Returns whether the squares of the rank's part count in the norm of the whole gradient.
inline bool counts_in_norm(const LocalTensor& local) { return local.copy == 0; }

}  // namespace hpctl
