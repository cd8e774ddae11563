// SPDX-License-Identifier: Apache-2.0
#include "common/layout/sharding.h"

#include "common/layout/memory_savings.h"

namespace hpctl {

int32_t state_parts(const TrainSpec& train, int32_t world_size, int32_t workers_per_node) {
  if (train.strategy == Strategy::kNoShard) return 1;
  if (train.strategy != Strategy::kHybrid) return world_size;
  return train.shard_group > 0 ? static_cast<int32_t>(train.shard_group) : workers_per_node;
}

bool keeps_parameters(const TrainSpec& train) {
  return train.strategy == Strategy::kNoShard || train.strategy == Strategy::kOptimizer ||
         train.strategy == Strategy::kShardGradOp || train.reshard_after_forward == Reshard::kNever;
}

bool keeps_gradients(const TrainSpec& train) {
  return train.strategy == Strategy::kNoShard || train.strategy == Strategy::kOptimizer;
}

bool keeps_rounded_weights(const TrainSpec& train, int32_t shards) {
  return train.precision == Precision::kBf16 && train.optimizer.master == StateType::kFp32 &&
         !offloads_optimizer(train) && (shards == 1 || !keeps_parameters(train));
}

Result<Sharding> sharding_of(const TrainSpec& train, int32_t world_size) {
  if (train.strategy == Strategy::kHybrid &&
      (train.shard_group < 1 || world_size % train.shard_group != 0)) {
    return Error{ErrorCode::kInvalidArgument,
                 "parallelism.shard_group: expected a divisor of the number of workers (" +
                     std::to_string(world_size) + "), found " + std::to_string(train.shard_group)};
  }
  const int32_t shards = state_parts(train, world_size, world_size);
  Sharding sharding;
  sharding.mesh = Mesh(world_size / shards, shards);
  sharding.keep_parameters = keeps_parameters(train);
  // A shard that is the whole block needs no second place for its gradient.
  sharding.whole_gradients = keeps_gradients(train) || shards == 1;
  return sharding;
}

std::string describe_sharding(const TrainSpec& train) {
  if (train.strategy != Strategy::kHybrid) return to_word(train.strategy);
  return "hybrid of " + std::to_string(train.shard_group);
}

}  // namespace hpctl
