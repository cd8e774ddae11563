// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/batch_reader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "trainer/arch/targets.h"

namespace hpctl {
namespace {

// For each token of the windows, [micro, seq_len + 1]: its position in its document, and whether it
// counts as a target.
void keep_documents_apart(MicroBatch& batch, DocumentMask mask, const at::Tensor& positions,
                          const at::Tensor& counted) {
  const int64_t tokens = batch.tokens.size(1);
  if (mask == DocumentMask::kDocuments) {
    batch.documents = documents_at(positions.narrow(1, 0, tokens).contiguous());
  }
  const at::Tensor left_out = counted.narrow(1, 1, tokens).eq(0);
  batch.targets = batch.targets.masked_fill(left_out, kNotCounted);
  batch.counted -= left_out.sum().item<int64_t>();
}

Result<MicroBatch> read_micro_batch(SampleReader& reader, std::span<const uint64_t> samples) {
  const int64_t window = reader.seq_len() + 1;
  const auto micro = static_cast<int64_t>(samples.size());
  const at::Tensor rows = at::empty({micro, window}, at::kLong);
  const int64_t positioned = reader.mask() == DocumentMask::kNone ? 0 : window;
  const at::Tensor positions = at::empty({micro, positioned}, at::kLong);
  const at::Tensor counted = at::empty({micro, positioned}, at::kByte);
  for (int64_t i = 0; i < micro; ++i) {
    int64_t* row = rows.data_ptr<int64_t>() + i * window;
    int64_t* position = positions.data_ptr<int64_t>() + i * positioned;
    HP_TRY(reader.read_sample(
        samples[static_cast<size_t>(i)], std::span(row, static_cast<size_t>(window)),
        std::span(position, static_cast<size_t>(positioned)),
        std::span(counted.data_ptr<uint8_t>() + i * positioned, static_cast<size_t>(positioned))));
  }
  MicroBatch batch{.tokens = rows.narrow(1, 0, window - 1).contiguous(),
                   .targets = rows.narrow(1, 1, window - 1).contiguous(),
                   .documents = {},
                   .counted = micro * (window - 1)};
  if (positioned > 0) keep_documents_apart(batch, reader.mask(), positions, counted);
  return batch;
}

// For a rank whose peers have one more micro-batch: it takes part in the collectives.
MicroBatch padding(int64_t seq_len) {
  return {.tokens = at::zeros({1, seq_len}, at::kLong),
          .targets = at::full({1, seq_len}, kNotCounted, at::kLong),
          .documents = {},
          .counted = 0};
}

}  // namespace

Result<std::vector<MicroBatch>> read_micro_batches(SampleReader& reader,
                                                   const std::vector<uint64_t>& samples,
                                                   int64_t micro, uint64_t count) {
  const auto rows = static_cast<size_t>(micro);
  HP_CHECK(micro > 0 && samples.size() <= rows * count);
  std::span<const uint64_t> left = samples;
  std::vector<MicroBatch> batches;
  while (batches.size() < count) {
    const auto taken = left.first(std::min(rows, left.size()));
    left = left.subspan(taken.size());
    if (taken.empty()) {
      batches.push_back(padding(reader.seq_len()));
    } else {
      HP_TRY_ASSIGN(MicroBatch batch, read_micro_batch(reader, taken));
      batches.push_back(std::move(batch));
    }
  }
  return batches;
}

}  // namespace hpctl
