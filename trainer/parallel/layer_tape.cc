// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/layer_tape.h"

#include <utility>

#include "common/base/check.h"

namespace hpctl {

namespace {

using at::Tensor;

Tensor leaf_of(const Tensor& x) { return x.detach().set_requires_grad(x.requires_grad()); }

Tensor as_row_matrix(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// One call of autograd for the results that need one; a result that passes by is its own leaf.
void backward_of(const Tensors& results, const Tensors& gradients) {
  Tensors roots;
  Tensors of_roots;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(results[i]);
    of_roots.push_back(gradients[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, of_roots);
}

}  // namespace

LayerTape::LayerTape(const Model& model, RowExchange* exchange, int64_t sequences, int64_t tokens,
                     const Documents& documents, Keep keep)
    : model_(model),
      exchange_(exchange),
      sequences_(sequences),
      tokens_(tokens),
      documents_(documents),
      keep_(keep) {
  if (exchange_ != nullptr) find_pieces();
}

void LayerTape::find_pieces() {
  const std::vector<Segment>& segments = model_.segments();
  size_t first = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Exchange after = segments[s].after;
    const bool exchanges = after == Exchange::kGather || after == Exchange::kSum;
    if (!exchanges && s + 1 < segments.size()) continue;
    pieces_.push_back({first, s + 1, exchanges ? after : Exchange::kNone});
    first = s + 1;
  }
  leaves_.resize(pieces_.size());
  results_.resize(pieces_.size());
}

Result<Tensor> LayerTape::forward(const Tensors& parameters, const Tensor& x) {
  const c10::AutoGradMode mode(keep_ != Keep::kInput);
  Recomputed* const recomputed = keep_ == Keep::kProducts ? &recomputed_ : nullptr;
  input_ = leaf_of(x);
  if (exchange_ == nullptr) {
    output_ = model_.layer(parameters, input_, documents_, recomputed);
  } else {
    HP_TRY(run(parameters, Pass::kForward));
  }
  Tensor result = output_.detach();
  if (keep_ == Keep::kInput) output_ = Tensor();
  if (keep_ == Keep::kProducts) give_up();
  return result;
}

// Leaves the graph of each piece, unless gradients are off, and the layer's output.
Outcome LayerTape::run(const Tensors& parameters, Pass pass) {
  Recomputed* const recomputed = keep_ == Keep::kProducts ? &recomputed_ : nullptr;
  const LayerCall call = {parameters, documents_, recomputed, /*divided=*/true};
  const bool keeps_graphs = c10::GradMode::is_enabled();
  next_sum_ = 0;
  Tensors in = {input_};
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Tensors out = run_piece(call, p, in);
    if (keeps_graphs) {
      leaves_[p] = in;
      results_[p] = out;
    }
    if (pieces_[p].after == Exchange::kNone) {
      output_ = out.front();
      break;
    }
    HP_TRY_ASSIGN(Tensor last, exchanged(pieces_[p], out.back().detach(), pass));
    last.set_requires_grad(out.back().requires_grad());
    in = {leaf_of(out.front()), std::move(last)};
  }
  return Ok{};
}

Tensors LayerTape::run_piece(const LayerCall& call, size_t piece, Tensors in) const {
  const std::vector<Segment>& segments = model_.segments();
  if (piece > 0) {
    const std::optional<size_t> addend = segments[pieces_[piece - 1].end - 1].addend;
    if (addend) in.back() = in.back() + call.parameters[*addend];
  }
  for (size_t s = pieces_[piece].first; s < pieces_[piece].end; ++s) in = segments[s].run(call, in);
  return in;
}

Result<Tensor> LayerTape::exchanged(const Piece& piece, const Tensor& last, Pass pass) {
  if (piece.after == Exchange::kGather) {
    HP_TRY_ASSIGN(const Tensor rows, exchange_->gather_rows(last, sequences_ * tokens_));
    return with_sequences(rows);
  }
  if (pass == Pass::kAgain) return sums_.at(next_sum_++);
  HP_TRY_ASSIGN(Tensor sum, exchange_->sum_rows(as_row_matrix(last)));
  if (keep_ == Keep::kInput) sums_.push_back(sum);
  return sum;
}

Outcome LayerTape::compute_again(const Tensors& parameters) {
  if (keep_ == Keep::kProducts) return restore();
  if (keep_ == Keep::kGraph) return Ok{};
  if (exchange_ != nullptr) return run(parameters, Pass::kAgain);
  output_ = model_.layer(parameters, input_, documents_);
  return Ok{};
}

Result<Tensor> LayerTape::backward(const Tensor& gradient) {
  if (exchange_ == nullptr) {
    backward_of({output_}, {gradient});
    output_ = Tensor();
    return std::exchange(input_, Tensor()).grad();
  }
  HP_TRY_ASSIGN(const Tensors found, backward_pieces(gradient));
  output_ = Tensor();
  input_ = Tensor();
  sums_.clear();
  return found.front();
}

Result<Tensors> LayerTape::backward_pieces(const Tensor& gradient) {
  Tensors gradients = {gradient};
  for (size_t p = pieces_.size(); p-- > 0;) {
    backward_of(results_[p], gradients);
    gradients.clear();
    for (const Tensor& leaf : leaves_[p]) gradients.push_back(leaf.grad());
    leaves_[p].clear();
    results_[p].clear();
    if (p == 0 || !gradients.back().defined()) continue;
    HP_TRY_ASSIGN(gradients.back(), transposed(pieces_[p - 1], gradients.back()));
  }
  return gradients;
}

Result<Tensor> LayerTape::transposed(const Piece& piece, const Tensor& gradient) {
  if (piece.after == Exchange::kGather) return exchange_->sum_rows(as_row_matrix(gradient));
  HP_TRY_ASSIGN(const Tensor rows, exchange_->gather_rows(gradient, sequences_ * tokens_));
  return with_sequences(rows);
}

// Gathered rows are the last leaf of the piece after a gather.
void LayerTape::give_up() {
  recomputed_.give_up();
  for (size_t p = 0; p + 1 < pieces_.size(); ++p) {
    if (pieces_[p].after != Exchange::kGather) continue;
    compat::set_storage_memory(leaves_[p + 1].back(), nullptr, 0);
  }
}

// The rows that are gathered again are results of norms, which are restored by then.
Outcome LayerTape::restore() {
  recomputed_.restore();
  const c10::NoGradGuard no_grad;
  for (size_t p = 0; p + 1 < pieces_.size(); ++p) {
    if (pieces_[p].after != Exchange::kGather) continue;
    HP_TRY_ASSIGN(const Tensor again,
                  exchange_->gather_rows(results_[p].back().detach(), sequences_ * tokens_));
    compat::move_storage_memory(again, leaves_[p + 1].back());
  }
  return Ok{};
}

Tensor LayerTape::with_sequences(const Tensor& rows) const {
  return rows.view({sequences_, tokens_, -1});
}

}  // namespace hpctl
