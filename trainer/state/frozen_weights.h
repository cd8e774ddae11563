// SPDX-License-Identifier: Apache-2.0
// The base of a job with workload.train.lora: this rank's shard of a model that is not trained, in
// the type of computation, from a checkpoint that stays where it is. It is part of no state: no
// slot of the arena, no checkpoint and no copy at a peer has it, and a process that starts reads it
// again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/train_spec.h"
#include "common/layout/block_layout.h"
#include "common/layout/mesh.h"
#include "common/layout/weight_shards.h"
#include "trainer/device/device.h"

namespace hpctl {

class FrozenWeights {
 public:
  // Of rank `rank`; the device outlives it. kInvalidArgument: as check_base(); kFailedPrecondition:
  // it cannot be read.
  static Result<FrozenWeights> load(const TrainSpec& train, const Mesh& mesh, int32_t rank,
                                    Device& device);

  const std::vector<Block>& blocks() const { return blocks_; }
  WeightShards shards() const;
  // 8 hexadecimal digits over what its files hold.
  const std::string& checksum() const { return checksum_; }
  bool is_part(int32_t index, int32_t count) const { return index == index_ && count == count_; }

 private:
  FrozenWeights() = default;

  std::vector<Block> blocks_;
  std::vector<DeviceArray<std::byte>> values_;  // of each block
  bool rounded_ = false;
  std::string checksum_;
  int32_t index_ = 0;
  int32_t count_ = 1;
};

}  // namespace hpctl
