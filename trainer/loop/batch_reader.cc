// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/batch_reader.h"

#include <span>

#include "trainer/arch/targets.h"

namespace hpctl {
namespace {

// `positions`: of each token of the windows in its document, [micro, seq_len + 1].
void keep_documents_apart(MicroBatch& batch, const at::Tensor& positions) {
  const int64_t tokens = batch.tokens.size(1);
  batch.documents = documents_at(positions.narrow(1, 0, tokens).contiguous());
  const at::Tensor first = positions.narrow(1, 1, tokens).eq(0);
  batch.targets = batch.targets.masked_fill(first, kNotCounted);
  batch.counted -= first.sum().item<int64_t>();
}

}  // namespace

Result<std::vector<MicroBatch>> read_micro_batches(SampleReader& reader,
                                                   const std::vector<uint64_t>& samples,
                                                   int64_t micro) {
  HP_CHECK(micro > 0 && samples.size() % static_cast<size_t>(micro) == 0);
  const int64_t window = reader.seq_len() + 1;
  std::vector<MicroBatch> batches;
  for (size_t first = 0; first < samples.size(); first += static_cast<size_t>(micro)) {
    const at::Tensor rows = at::empty({micro, window}, at::kLong);
    const int64_t positioned = reader.resets_at_documents() ? window : 0;
    const at::Tensor positions = at::empty({micro, positioned}, at::kLong);
    for (int64_t i = 0; i < micro; ++i) {
      int64_t* row = rows.data_ptr<int64_t>() + i * window;
      int64_t* position = positions.data_ptr<int64_t>() + i * positioned;
      HP_TRY(reader.read_sample(samples[first + static_cast<size_t>(i)],
                                std::span(row, static_cast<size_t>(window)),
                                std::span(position, static_cast<size_t>(positioned))));
    }
    batches.push_back({.tokens = rows.narrow(1, 0, window - 1).contiguous(),
                       .targets = rows.narrow(1, 1, window - 1).contiguous(),
                       .documents = {},
                       .counted = micro * (window - 1)});
    if (positioned > 0) keep_documents_apart(batches.back(), positions);
  }
  return batches;
}

}  // namespace hpctl
