// SPDX-License-Identifier: Apache-2.0
// The tensors of one rank's part of a step, from sample numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "trainer/arch/documents.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/data/sample_reader.h"

namespace hpctl {

struct MicroBatch {
  at::Tensor tokens;    // [rows, seq_len] int64
  at::Tensor targets;   // [rows, seq_len] int64: the token that follows, or kNotCounted
  Documents documents;  // empty unless SampleReader::mask() is documents
  int64_t counted = 0;  // targets that are
};

// Unless that is none, no document predicts the first token of the next: that target is not
// counted; nor is what data.format says is given.
//
// `count` micro-batches, of which number m takes samples [m * micro, (m + 1) * micro), as far as
// there are some; one without a sample has one row that is not counted.
Result<std::vector<MicroBatch>> read_micro_batches(SampleReader& reader,
                                                   const std::vector<uint64_t>& samples,
                                                   int64_t micro, uint64_t count);

}  // namespace hpctl
