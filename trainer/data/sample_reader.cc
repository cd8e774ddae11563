// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/sample_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "trainer/data/sample_order.h"

namespace hpctl {

SampleReader::SampleReader(Corpus corpus, int64_t seq_len, uint64_t seed)
    : corpus_(std::move(corpus)),
      seq_len_(seq_len),
      seed_(seed),
      windows_((corpus_.tokens() - 1) / static_cast<uint64_t>(seq_len)),
      buffer_(static_cast<size_t>(seq_len) + 1) {}

Result<SampleReader> SampleReader::open(const DataSpec& spec, uint64_t seed) {
  HP_CHECK(spec.seq_len >= 1);
  HP_TRY_ASSIGN(Corpus corpus, Corpus::open(spec.path));
  const auto needed = static_cast<uint64_t>(spec.seq_len) + 1;
  if (corpus.tokens() < needed) {
    return Error{ErrorCode::kInvalidArgument,
                 "data " + spec.path + " has " + std::to_string(corpus.tokens()) +
                     " tokens, a sample needs seq_len + 1 = " + std::to_string(needed) +
                     "; add text or lower workload.train.data.seq_len"};
  }
  return SampleReader(std::move(corpus), spec.seq_len, seed);
}

Outcome SampleReader::read_sample(uint64_t sample, std::span<int64_t> out) {
  HP_CHECK(out.size() == buffer_.size());
  const uint64_t window = window_of_sample(seed_, windows_, sample);
  HP_TRY(corpus_.read(window * static_cast<uint64_t>(seq_len_), buffer_));
  std::copy(buffer_.begin(), buffer_.end(), out.begin());
  return Ok{};
}

}  // namespace hpctl
