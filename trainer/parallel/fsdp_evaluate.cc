// SPDX-License-Identifier: Apache-2.0
// FullySharded without gradients, for validation. Blocks are gathered one after another, without
// prefetch: it is a small part of a run, and so memory stays below the peak of training. The sum
// stays on the device, as in a step, until all micro-batches have been given to it.
#include "trainer/parallel/fsdp.h"

#include <algorithm>
#include <utility>

namespace hpctl {

void FullySharded::begin_evaluation(WeightShards shards) {
  HP_CHECK(micro_batches_left_ == 0);
  HP_CHECK(shards.size() == (frozen_ == nullptr ? blocks_ : adapters_).size());
  release_written();
  shards_ = std::move(shards);
  clear_sums();
  device_.zero(marks_.data(), static_cast<int64_t>(marks_.size()));
  unsettled_evaluations_ = 0;
}

Outcome FullySharded::evaluate(const at::Tensor& tokens, const at::Tensor& targets,
                               const Documents& documents, bool counts) {
  HP_CHECK(micro_batches_left_ == 0);
  const c10::AutoGradMode mode(false);
  documents_ = documents.on(device_.name());
  sequences_ = tokens.size(0);
  tokens_ = tokens.size(1);
  at::Tensor x = compat::to_device(tokens, device_.name());
  for (size_t b = 0; b < head_; ++b) {
    HP_TRY(gather(b));
    HP_TRY_ASSIGN(x, evaluate_block(b, x));
    if (!sharding_.keep_parameters) release(b);
  }
  HP_TRY(gather(head_));
  if (tied_) HP_TRY(gather(0));
  const at::Tensor labels = compat::to_device(targets, device_.name()).reshape({-1});
  HP_TRY_ASSIGN(const at::Tensor loss_sum, evaluate_loss(x, labels));
  if (!sharding_.keep_parameters) release(head_);
  if (!sharding_.keep_parameters && tied_) release(0);
  if (counts) loss_sum_.add_(loss_sum);
  HP_TRY(meet());
  if (++unsettled_evaluations_ < kUnsettledEvaluations) return Ok{};
  unsettled_evaluations_ = 0;
  return settle();
}

// x: tokens, or the output of the block before.
Result<at::Tensor> FullySharded::evaluate_block(size_t block, const at::Tensor& x) {
  const std::vector<at::Tensor> all = parameters(block);
  if (!rows_) {
    return block == 0 ? model_.embed(all, x, documents_) : model_.layer(all, x, documents_);
  }
  if (block == 0) return EmbeddingTape(model_, *rows_, vocabulary_).forward(all, x, documents_);
  LayerTape layer(model_, &*rows_, sequences_, tokens_, documents_, Keep::kInput);
  return layer.forward(all, x);
}

Result<at::Tensor> FullySharded::evaluate_loss(const at::Tensor& x, const at::Tensor& labels) {
  const std::vector<at::Tensor> all = head_parameters();
  if (rows_) {
    const HeadCall call = {model_, *rows_, all, labels, vocabulary_, chunk_tokens_};
    HP_TRY_ASSIGN(HeadResult result, evaluate_head(call, x));
    return std::move(result.entropy);
  }
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const int64_t chunk = chunk_tokens_ == 0 ? labels.numel() : chunk_tokens_;
  at::Tensor loss_sum = at::zeros({}, x.options().dtype(at::kDouble));
  for (int64_t first = 0; first < labels.numel(); first += chunk) {
    const int64_t count = std::min(chunk, labels.numel() - first);
    const at::Tensor logits = model_.logits(all, rows.narrow(0, first, count));
    const Model::Loss loss = model_.loss(logits, labels.narrow(0, first, count));
    loss_sum.add_(loss.entropy.to(at::kDouble));
  }
  return loss_sum;
}

Result<double> FullySharded::finish_evaluation() {
  HP_TRY(settle());
  double sum = 0;
  device_.download(sums_.data(), &sum, sizeof sum);
  return sum;
}

// A barrier that a device's streams keep, and not the host.
Outcome FullySharded::meet() {
  HP_TRY_ASSIGN(const CollectivePtr marks,
                comms_.world().begin_all_gather(marks_.data(), sizeof(float)));
  return marks->wait();
}

// Waits for it, too.
Outcome FullySharded::gather(size_t block) {
  if (last_part(block).gathered()) return Ok{};
  HP_TRY(begin_gather(block));
  return finish_gather(block);
}

}  // namespace hpctl
