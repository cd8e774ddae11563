// SPDX-License-Identifier: Apache-2.0
// RowExchange between processes, over the communicator of the tp dimension. Some ranks may
// have one row more than others, so every chunk has room for the larger number. Each call returns
// when its collective is done. On a device it returns when the device's streams wait for it.
#pragma once

#include <cstdint>

#include "trainer/comm/communicator.h"
#include "trainer/parallel/comm_timer.h"
#include "trainer/parallel/row_exchange.h"

namespace hpctl {

class CommunicatorRows : public RowExchange {
 public:
  // The communicator outlives it, and so does the timer; null = nobody asks.
  explicit CommunicatorRows(Communicator& comm, CommTimer* timer = nullptr)
      : comm_(comm), timer_(timer) {}

  TensorPlace place() const override { return {comm_.rank(), comm_.world_size()}; }
  Result<at::Tensor> gather_rows(const at::Tensor& own, int64_t rows) override;
  // Of fp32, fp64, or bf16, which is added in fp32 and rounded once.
  Result<at::Tensor> sum_rows(const at::Tensor& whole) override;
  Result<at::Tensor> gather_each(const at::Tensor& own) override;

  // Seconds that this thread has waited for collectives, so far.
  double wait_seconds() const { return wait_seconds_; }

 private:
  // chunks [ranks, ...], of which this rank's is there already.
  Outcome gather(const at::Tensor& chunks);
  Outcome wait(Result<CollectivePtr> begun);

  Communicator& comm_;
  CommTimer* timer_;
  double wait_seconds_ = 0;
};

}  // namespace hpctl
