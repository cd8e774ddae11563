// SPDX-License-Identifier: Apache-2.0
// The embedding and the loss of a rank that has some rows of the vocabulary. Logits are never
// gathered. Each rank gathers three numbers for each token (row_statistics()) and computes the loss
// from them, with the same bits on every rank. Numbers are in fp32, or fp64 where the logits are.
//
// A target is counted unless it is kNotCounted (targets.h). A target outside the local rows is
// counted too; its logit comes from the rank that has it.
#pragma once

#include <cstdint>

#include "common/layout/local_layout.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

// table: the local rows of the embedding, `part` of the vocabulary; tokens [rows] int64 ->
// [rows, D]; zeros for tokens outside the part, so the sum over ranks is the embedding, exactly.
at::Tensor embed_part(const at::Tensor& table, const at::Tensor& tokens, Share part);

// logits [rows, part.count], targets [rows] int64 -> [rows, 3]: the largest logit of a row, the sum
// of the exponentials of logits less that, and the logit of the target, 0 if that is elsewhere. No
// graph.
at::Tensor row_statistics(const at::Tensor& logits, const at::Tensor& targets, Share part);

// For every row, over the whole vocabulary.
struct RowLogits {
  at::Tensor log_sum;  // [rows], logarithm of the sum of exponentials
  at::Tensor target;   // [rows], logit of the target
};
// statistics [ranks, rows, 3], combined in the order of ranks.
RowLogits combine_statistics(const at::Tensor& statistics);

// The cross entropy, summed over rows that are counted: fp64, no dimensions.
at::Tensor entropy_of(const RowLogits& rows, const at::Tensor& targets);

// The gradient of scale * (entropy + z_loss * squares of log_sum) for the local logits, in their
// type.
at::Tensor logits_part_gradient(const at::Tensor& logits, const at::Tensor& targets, Share part,
                                const RowLogits& rows, double z_loss, double scale);

}  // namespace hpctl
