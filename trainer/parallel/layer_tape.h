// SPDX-License-Identifier: Apache-2.0
// One layer for one micro-batch, forward and backward, cut where tp ranks exchange tensors.
//
// Segments between two exchanges form a piece, which is one graph of autograd. Between pieces the
// tape makes the exchange, and in the backward pass its transpose:
//
//   after a piece          forward                      backward
//   norm                   gather rows                  sum rows of all ranks, keep the own ones
//   last of a branch       sum rows, keep the own ones  gather rows
//
// So no collective runs inside autograd, and all ranks make the same collectives in the same order.
// Between exchanges the residual stream and the norms have the rank's own rows only.
//
// A layer whose input alone is kept runs again before its backward pass. It repeats the gathers and
// keeps the sums, so that half of the collectives are repeated. With Keep::kProducts, results of
// cheap operations and gathered rows are given up and made again.
//
// Without an exchange a layer is one graph, with the bits of Model::layer().
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "trainer/arch/model.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/parallel/row_exchange.h"

namespace hpctl {

// What a layer keeps from its forward to its backward pass.
enum class Keep : uint8_t {
  kGraph,     // everything that autograd saves
  kProducts,  // that, but for cheap operations (recomputed.h) and gathered rows
  kInput,     // its input and the results of sums
};

class LayerTape {
 public:
  // For a micro-batch of `sequences` of `tokens` each. The model, the documents and the exchange,
  // null for one rank, outlive the tape.
  LayerTape(const Model& model, RowExchange* exchange, int64_t sequences, int64_t tokens,
            const Documents& documents, Keep keep);

  // x: [sequences, tokens, D], or with an exchange [own rows, D], as the result. Its gradient is
  // computed if it requires one. `parameters` are this rank's parts, as of Model::layer().
  Result<at::Tensor> forward(const Tensors& parameters, const at::Tensor& x);
  // After forward(), once, with the same parameters: computes what was not kept.
  Outcome compute_again(const Tensors& parameters);
  // After that, once: adds the gradients of the parameters. Takes the gradient of the result and
  // returns the gradient of x, undefined if x requires none.
  Result<at::Tensor> backward(const at::Tensor& gradient);
  // x, from forward() to backward(). With Keep::kInput the caller may move its memory between the
  // two passes (offloaded_inputs.h).
  const at::Tensor& input() const { return input_; }

 private:
  // Segments [first, end), of which the last is followed by an exchange, or is the layer's last.
  struct Piece {
    size_t first;
    size_t end;
    Exchange after;
  };
  enum class Pass : uint8_t { kForward, kAgain };

  void find_pieces();
  Outcome run(const Tensors& parameters, Pass pass);
  Tensors run_piece(const LayerCall& call, size_t piece, Tensors in) const;
  Result<at::Tensor> exchanged(const Piece& piece, const at::Tensor& last, Pass pass);
  Result<at::Tensor> transposed(const Piece& piece, const at::Tensor& gradient);
  Result<Tensors> backward_pieces(const at::Tensor& gradient);
  void give_up();
  Outcome restore();
  at::Tensor with_sequences(const at::Tensor& rows) const;

  const Model& model_;
  RowExchange* exchange_;
  int64_t sequences_;
  int64_t tokens_;
  const Documents& documents_;
  Keep keep_;
  std::vector<Piece> pieces_;
  Recomputed recomputed_;
  at::Tensor input_;  // a leaf
  at::Tensor output_;
  std::vector<Tensors> leaves_;   // by piece
  std::vector<Tensors> results_;  // likewise, with their graphs
  Tensors sums_;                  // with Keep::kInput
  size_t next_sum_ = 0;           // of the pass under way
};

}  // namespace hpctl
