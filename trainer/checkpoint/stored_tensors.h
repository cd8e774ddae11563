// SPDX-License-Identifier: Apache-2.0
// A checkpoint seen as named tensors instead of blocks and shards: what digest and diff compare.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shard_reader.h"

namespace hpctl {

// Every parameter NAME counts as three tensors: NAME, NAME.exp_avg, NAME.exp_avg_sq.
struct StoredTensor {
  std::string name;
  int32_t block = 0;
  StateKind kind = StateKind::kParam;
  const TensorSlot* slot = nullptr;  // in the manifest it came from
};

// All of them, ascending by name bytewise. The manifest must outlive the result.
std::vector<StoredTensor> tensors_by_name(const Manifest& manifest);

// Reads the tensor's elements [first, first + out.size()), row-major, without looking at checksums
// (ranges are checksummed whole; verify_checkpoint first).
Outcome read_elements(const Manifest& manifest, ShardFiles& shards, const StoredTensor& tensor,
                      int64_t first, std::span<float> out);

}  // namespace hpctl
