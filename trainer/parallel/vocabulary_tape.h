// SPDX-License-Identifier: Apache-2.0
// The two ends of a model whose vocabulary is divided over tp ranks (vocabulary_loss.h), for one
// micro-batch: the embedding of tokens, and the head with the loss. As in layer_tape.h, exchanges
// are between graphs. Every rank has the tokens and targets of the whole micro-batch.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "trainer/arch/model.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/parallel/row_exchange.h"

namespace hpctl {

class EmbeddingTape {
 public:
  // `vocabulary`: rows of the whole token embedding. Model and exchange outlive the tape.
  EmbeddingTape(const Model& model, RowExchange& exchange, int64_t vocabulary);

  // tokens [B, T] int64 -> this rank's rows [own rows, D]. `parameters` as of Model::embed(), with
  // the local rows of the first.
  Result<at::Tensor> forward(const Tensors& parameters, const at::Tensor& tokens,
                             const Documents& documents);
  // After forward(), once: adds the gradients of the parameters.
  Outcome backward(const at::Tensor& gradient);

 private:
  const Model& model_;
  RowExchange& exchange_;
  Share part_;
  int64_t rows_ = 0;
  at::Tensor partial_;  // [rows, D], with its graph
  at::Tensor sum_;      // a leaf [own rows, D]
  at::Tensor result_;
};

struct HeadResult {
  // The cross entropy of the whole micro-batch, fp64: the same number on every rank, so one of them
  // reports it.
  at::Tensor entropy;
  at::Tensor gradient;  // of x; undefined without a backward pass
};

// The head's arguments, which outlive the call.
struct HeadCall {
  const Model& model;
  RowExchange& exchange;
  const Tensors& parameters;  // as of Model::logits(), with the local rows of the projection
  const at::Tensor& targets;  // [rows] int64, of the whole micro-batch
  int64_t vocabulary;         // rows of the whole projection
  int64_t chunk_rows = 0;     // whose logits are in memory at a time; 0 = all
};

// x [own rows, D].
Result<HeadResult> evaluate_head(const HeadCall& call, const at::Tensor& x);
// The same, and adds the gradients of the objective (Model::Loss) times `scale`.
Result<HeadResult> backward_head(const HeadCall& call, const at::Tensor& x, double scale);

}  // namespace hpctl
