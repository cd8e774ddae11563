// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/vocabulary_tape.h"

#include <algorithm>
#include <utility>

#include "trainer/arch/vocabulary_loss.h"

namespace hpctl {

namespace {

using at::Tensor;

// Positions of the rows of a micro-batch in their documents: [B * T] int64.
Tensor row_positions(const Tensor& tokens, const Documents& documents) {
  if (!documents.empty()) return documents.positions.reshape({-1});
  return at::arange(tokens.size(1), tokens.options()).repeat({tokens.size(0)});
}

// Rows of the logits that are in memory at a time.
struct HeadChunk {
  Tensor logits;  // [rows, part of the vocabulary]
  Tensor targets;
  RowLogits rows;
};

Share vocabulary_part(const RowExchange& exchange, int64_t vocabulary) {
  return share_of(vocabulary, exchange.place().rank, exchange.place().size);
}

Result<HeadChunk> head_chunk(const HeadCall& call, const Tensor& rows, const Tensor& targets) {
  Tensor logits = call.model.project(call.parameters, rows);
  const Tensor own =
      row_statistics(logits, targets, vocabulary_part(call.exchange, call.vocabulary));
  HP_TRY_ASSIGN(const Tensor all, call.exchange.gather_each(own.view({-1})));
  RowLogits combined = combine_statistics(all.view({all.size(0), -1, own.size(-1)}));
  return HeadChunk{std::move(logits), targets, std::move(combined)};
}

// visit(chunk, first row, rows as a leaf) for each chunk -> the entropy.
template <typename Visit>
Result<Tensor> for_head_chunks(const HeadCall& call, const Tensor& normed, bool learns,
                               const Visit& visit) {
  const int64_t all = call.targets.numel();
  const int64_t most = call.chunk_rows == 0 ? all : call.chunk_rows;
  Tensor entropy = at::zeros({}, normed.options().dtype(at::kDouble));
  for (int64_t first = 0; first < all; first += most) {
    const int64_t count = std::min(most, all - first);
    const Tensor rows = normed.narrow(0, first, count).detach().set_requires_grad(learns);
    HP_TRY_ASSIGN(const HeadChunk chunk,
                  head_chunk(call, rows, call.targets.narrow(0, first, count)));
    entropy += entropy_of(chunk.rows, chunk.targets);
    visit(chunk, first, rows);
  }
  return entropy;
}

}  // namespace

EmbeddingTape::EmbeddingTape(const Model& model, RowExchange& exchange, int64_t vocabulary)
    : model_(model), exchange_(exchange), part_(vocabulary_part(exchange, vocabulary)) {}

Result<Tensor> EmbeddingTape::forward(const Tensors& parameters, const Tensor& tokens,
                                      const Documents& documents) {
  rows_ = tokens.numel();
  partial_ = embed_part(parameters.front(), tokens.reshape({-1}), part_);
  HP_TRY_ASSIGN(sum_, exchange_.sum_rows(partial_.detach()));
  sum_.set_requires_grad(partial_.requires_grad());
  const Share own = own_rows(exchange_, rows_);
  const Tensor positions = row_positions(tokens, documents).narrow(0, own.begin, own.count);
  result_ = model_.with_positions(parameters, sum_, positions);
  return result_.detach();
}

Outcome EmbeddingTape::backward(const Tensor& gradient) {
  torch::autograd::backward({result_}, {gradient});
  HP_TRY_ASSIGN(const Tensor rows, exchange_.gather_rows(sum_.grad(), rows_));
  torch::autograd::backward({partial_}, {rows});
  partial_ = sum_ = result_ = Tensor();
  return Ok{};
}

Result<HeadResult> evaluate_head(const HeadCall& call, const Tensor& x) {
  const c10::NoGradGuard no_grad;
  const Tensor own = call.model.final_norm(call.parameters, x);
  HP_TRY_ASSIGN(const Tensor normed, call.exchange.gather_rows(own, call.targets.numel()));
  HP_TRY_ASSIGN(Tensor entropy, for_head_chunks(call, normed, /*learns=*/false,
                                                [](const HeadChunk&, int64_t, const Tensor&) {}));
  return HeadResult{std::move(entropy), Tensor()};
}

Result<HeadResult> backward_head(const HeadCall& call, const Tensor& x, double scale) {
  const Tensor input = x.detach().set_requires_grad(true);
  const Tensor own = call.model.final_norm(call.parameters, input);
  HP_TRY_ASSIGN(const Tensor normed, call.exchange.gather_rows(own.detach(), call.targets.numel()));
  const Share part = vocabulary_part(call.exchange, call.vocabulary);
  Tensor gradient = at::empty_like(normed);
  const auto visit = [&](const HeadChunk& chunk, int64_t first, const Tensor& rows) {
    const Tensor of_logits = logits_part_gradient(chunk.logits, chunk.targets, part, chunk.rows,
                                                  call.model.z_loss(), scale);
    torch::autograd::backward({chunk.logits}, {of_logits});
    gradient.narrow(0, first, rows.size(0)).copy_(rows.grad());
  };
  HP_TRY_ASSIGN(Tensor entropy, for_head_chunks(call, normed, /*learns=*/true, visit));
  HP_TRY_ASSIGN(const Tensor of_own, call.exchange.sum_rows(gradient));
  torch::autograd::backward({own}, {of_own});
  return HeadResult{std::move(entropy), input.grad()};
}

}  // namespace hpctl
