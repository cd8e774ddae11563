// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/copied_gradients.h"

#include <bit>

namespace hpctl {

namespace {

using at::Tensor;

// Adds parts [first, end): a first half of 2^k parts, as many as leave a rest, and the rest.
Tensor sum_of_parts(const std::vector<Tensor>& parts, size_t first, size_t end) {
  if (end - first == 1) return parts[first];
  const size_t middle = first + std::bit_floor(end - first - 1);
  return sum_of_parts(parts, first, middle) + sum_of_parts(parts, middle, end);
}

}  // namespace

Tensor add_in_pairs(const std::vector<Tensor>& parts) {
  return sum_of_parts(parts, 0, parts.size());
}

Outcome sum_copies(RowExchange& exchange, const std::vector<CopiedGradient>& copied) {
  if (copied.empty()) return Ok{};
  const c10::NoGradGuard no_grad;
  std::vector<Tensor> flat;
  for (const CopiedGradient& one : copied) flat.push_back(one.gradient.view({-1}));
  HP_TRY_ASSIGN(const Tensor all, exchange.gather_each(at::cat(flat)));
  int64_t offset = 0;
  for (size_t i = 0; i < copied.size(); ++i) {
    const int64_t first = exchange.place().rank - copied[i].copy;
    const Tensor of_all = all.narrow(1, offset, flat[i].numel());
    flat[i].copy_(add_in_pairs(of_all.narrow(0, first, copied[i].copies).unbind(0)));
    offset += flat[i].numel();
  }
  return Ok{};
}

}  // namespace hpctl
