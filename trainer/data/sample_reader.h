// SPDX-License-Identifier: Apache-2.0
// Training samples: windows of seq_len + 1 tokens of a corpus with stride seq_len, in the order of
// sample_order.h. Window w is tokens [w*seq_len, w*seq_len + seq_len], so every token is predicted
// once per epoch; the up to seq_len - 1 tokens behind the last window are not used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/job_spec.h"
#include "common/base/result.h"
#include "trainer/data/corpus.h"

namespace hpctl {

class SampleReader {
 public:
  // Errors as Corpus::open; and a corpus shorter than one window.
  static Result<SampleReader> open(const DataSpec& spec, uint64_t seed);

  uint64_t windows() const { return windows_; }
  int64_t seq_len() const { return seq_len_; }
  const Corpus& corpus() const { return corpus_; }

  // Writes the seq_len + 1 tokens of sample number `sample` (any number: epochs repeat in another
  // order); out.size() must be seq_len + 1. Inputs are out[0, seq_len), targets out[1, seq_len].
  // One thread at a time.
  Outcome read_sample(uint64_t sample, std::span<int64_t> out);

 private:
  SampleReader(Corpus corpus, int64_t seq_len, uint64_t seed);

  Corpus corpus_;
  int64_t seq_len_;
  uint64_t seed_;
  uint64_t windows_;
  std::vector<uint8_t> buffer_;
};

}  // namespace hpctl
