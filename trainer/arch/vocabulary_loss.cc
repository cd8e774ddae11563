// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/vocabulary_loss.h"

#include "trainer/arch/model.h"
#include "trainer/arch/targets.h"

namespace hpctl {

namespace {

using at::Tensor;

// Tokens by their local rows.
struct LocalTokens {
  Tensor rows;     // [n] int64, 0 for tokens of other ranks
  Tensor missing;  // [n] bool: tokens of other ranks
};

LocalTokens local_tokens(const Tensor& tokens, Share part) {
  const Tensor rows = tokens - part.begin;
  const Tensor missing = rows.lt(0).logical_or(rows.ge(part.count));
  return {rows.masked_fill(missing, 0), missing};
}

}  // namespace

Tensor embed_part(const Tensor& table, const Tensor& tokens, Share part) {
  const LocalTokens local = local_tokens(tokens, part);
  return at::embedding(table, local.rows).masked_fill(local.missing.unsqueeze(-1), 0);
}

Tensor row_statistics(const Tensor& logits, const Tensor& targets, Share part) {
  const c10::NoGradGuard no_grad;
  const LocalTokens local = local_tokens(targets, part);
  const Tensor wide = widened(logits.detach());
  const Tensor largest = wide.amax(-1);
  const Tensor sum = (wide - largest.unsqueeze(-1)).exp_().sum(-1);
  const Tensor target =
      wide.gather(-1, local.rows.unsqueeze(-1)).squeeze(-1).masked_fill(local.missing, 0);
  return at::stack({largest, sum, target}, -1);
}

RowLogits combine_statistics(const Tensor& statistics) {
  const c10::NoGradGuard no_grad;
  const Tensor largest = statistics.select(-1, 0).amax(0);
  Tensor sum = at::zeros_like(largest);
  Tensor target = at::zeros_like(largest);
  for (const Tensor& rank : statistics.unbind(0)) {
    sum += rank.select(-1, 1) * (rank.select(-1, 0) - largest).exp();
    target += rank.select(-1, 2);
  }
  return {largest + sum.log(), target};
}

Tensor entropy_of(const RowLogits& rows, const Tensor& targets) {
  const Tensor each = (rows.log_sum - rows.target).masked_fill(targets.eq(kNotCounted), 0);
  return each.sum(at::kDouble);
}

Tensor logits_part_gradient(const Tensor& logits, const Tensor& targets, Share part,
                            const RowLogits& rows, double z_loss, double scale) {
  const c10::NoGradGuard no_grad;
  const LocalTokens local = local_tokens(targets, part);
  const Tensor counted = targets.ne(kNotCounted);
  const Tensor factor = (rows.log_sum * (2 * z_loss * scale) + scale) * counted;
  Tensor gradient = widened(logits.detach()) - rows.log_sum.unsqueeze(-1);
  gradient.exp_().mul_(factor.unsqueeze(-1));
  const Tensor own = counted.logical_and(local.missing.logical_not());
  const Tensor of_target = own.to(gradient.scalar_type()) * -scale;
  gradient.scatter_add_(-1, local.rows.unsqueeze(-1), of_target.unsqueeze(-1));
  return gradient.to(logits.scalar_type());
}

}  // namespace hpctl
