// SPDX-License-Identifier: Apache-2.0
// The communication of tensor parallelism, as the tapes need it. The tp ranks of a mesh each have a
// contiguous range of the rows of a micro-batch (sequence parallelism), and sum parts of products.
// A communicator implements this interface for processes; tests implement it for threads.
//
// All ranks make the same calls in the same order, each from one thread. Sums are in an order that
// depends on the number of ranks alone, so the same inputs give the same bits. Results are in new
// memory of the caller's. An error is a lost peer, as of communicator.h.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "common/layout/local_layout.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

class RowExchange {
 public:
  virtual ~RowExchange() = default;

  virtual TensorPlace place() const = 0;

  // own [this rank's rows, width] -> [rows, width], of all ranks in order.
  virtual Result<at::Tensor> gather_rows(const at::Tensor& own, int64_t rows) = 0;
  // whole [rows, width] -> this rank's rows of the sum over ranks.
  virtual Result<at::Tensor> sum_rows(const at::Tensor& whole) = 0;
  // own [n], as many on each rank -> [ranks, n].
  virtual Result<at::Tensor> gather_each(const at::Tensor& own) = 0;
};

// The rows that this rank has of `rows`.
inline Share own_rows(const RowExchange& exchange, int64_t rows) {
  return share_of(rows, exchange.place().rank, exchange.place().size);
}

}  // namespace hpctl
