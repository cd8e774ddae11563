// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/communicator_rows.h"

#include <chrono>
#include <vector>

#include "common/base/check.h"

namespace hpctl {

namespace {

using at::Tensor;

// Rows of a chunk: as many as the largest rank has.
int64_t chunk_rows_of(int64_t rows, int64_t ranks) { return (rows + ranks - 1) / ranks; }

NumberType number_type_of(at::ScalarType type) {
  if (type == at::kDouble) return NumberType::kFp64;
  if (type == at::kBFloat16) return NumberType::kBf16;
  HP_CHECK(type == at::kFloat);
  return NumberType::kFp32;
}

}  // namespace

Outcome CommunicatorRows::gather(const Tensor& chunks) {
  const size_t bytes = chunks.nbytes() / static_cast<size_t>(comm_.world_size());
  return wait(comm_.begin_all_gather(chunks.data_ptr(), bytes));
}

Outcome CommunicatorRows::wait(Result<CollectivePtr> begun) {
  using Clock = std::chrono::steady_clock;
  if (!begun.ok()) return begun.error();
  const Clock::time_point began = Clock::now();
  if (timer_ != nullptr) timer_->begun();
  HP_TRY((*begun)->wait());
  if (timer_ != nullptr) timer_->waited_for();
  wait_seconds_ += std::chrono::duration<double>(Clock::now() - began).count();
  return Ok{};
}

Result<Tensor> CommunicatorRows::gather_rows(const Tensor& own, int64_t rows) {
  const c10::NoGradGuard no_grad;
  const int64_t ranks = comm_.world_size();
  const int64_t most = chunk_rows_of(rows, ranks);
  const Tensor chunks = at::empty({ranks, most, own.size(-1)}, own.options());
  chunks[comm_.rank()].narrow(0, 0, own.size(0)).copy_(own);
  HP_TRY(gather(chunks));
  if (most * ranks == rows) return chunks.view({rows, -1});
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    parts.push_back(chunks[rank].narrow(0, 0, share_of(rows, rank, ranks).count));
  }
  return at::cat(parts, 0);
}

Result<Tensor> CommunicatorRows::sum_rows(const Tensor& whole) {
  const c10::NoGradGuard no_grad;
  const int64_t ranks = comm_.world_size();
  const int64_t rows = whole.size(0);
  const int64_t most = chunk_rows_of(rows, ranks);
  Tensor chunks = whole.contiguous();
  if (most * ranks != rows) {
    chunks = at::zeros({ranks, most, whole.size(-1)}, whole.options());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Share share = share_of(rows, rank, ranks);
      chunks[rank].narrow(0, 0, share.count).copy_(whole.narrow(0, share.begin, share.count));
    }
  }
  const Tensor sum = at::empty({most, whole.size(-1)}, whole.options());
  HP_TRY(wait(comm_.begin_sums(number_type_of(whole.scalar_type()), chunks.data_ptr(),
                               static_cast<size_t>(sum.numel()), sum.data_ptr())));
  return sum.narrow(0, 0, own_rows(*this, rows).count);
}

Result<Tensor> CommunicatorRows::gather_each(const Tensor& own) {
  const c10::NoGradGuard no_grad;
  Tensor all = at::empty({comm_.world_size(), own.numel()}, own.options());
  all[comm_.rank()].copy_(own);
  HP_TRY(gather(all));
  return all;
}

}  // namespace hpctl
