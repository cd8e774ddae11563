// SPDX-License-Identifier: Apache-2.0
#include "common/layout/sharding.h"

#include <string_view>

#include "common/layout/memory_savings.h"

namespace hpctl {

namespace {

// dp_shard, where so many ranks have samples of their own.
int32_t data_shards(const TrainSpec& train, int32_t data_ranks, int32_t workers_per_node) {
  if (train.strategy == Strategy::kNoShard) return 1;
  if (train.strategy != Strategy::kHybrid) return data_ranks;
  return train.shard_group > 0 ? static_cast<int32_t>(train.shard_group) : workers_per_node;
}

MeshDimension dimension(std::string_view name, int64_t degree) {
  return {std::string(name), static_cast<int32_t>(degree)};
}

}  // namespace

int32_t state_parts(const TrainSpec& train, int32_t world_size, int32_t workers_per_node) {
  const auto unit = static_cast<int32_t>(train.degrees.unit());
  return data_shards(train, world_size / unit, workers_per_node) * unit;
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

Result<Mesh> mesh_of(const TrainSpec& train, int32_t world_size, int32_t workers_per_node) {
  const DegreesSpec& degrees = train.degrees;
  if (degrees.unit() > world_size || world_size % degrees.unit() != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "parallelism: expected pipeline x context x tensor degree (" +
                     std::to_string(degrees.unit()) + ") to divide the number of workers (" +
                     std::to_string(world_size) + ")"};
  }
  const auto data_ranks = static_cast<int32_t>(world_size / degrees.unit());
  const int32_t shards = data_shards(train, data_ranks, workers_per_node);
  if (shards < 1 || data_ranks % shards != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "parallelism.shard_group: expected a divisor of the number of workers (" +
                     std::to_string(data_ranks) + "), found " + std::to_string(shards)};
  }
  return Mesh({dimension(MeshDim::kPp, degrees.pipeline),
               dimension(MeshDim::kDpReplicate, data_ranks / shards),
               dimension(MeshDim::kDpShard, shards), dimension(MeshDim::kCp, degrees.context),
               dimension(MeshDim::kTp, degrees.tensor)});
}

Result<Sharding> sharding_of(const TrainSpec& train, int32_t world_size) {
  // 0 is the controller's to replace: the engine does not know nodes.
  HP_TRY_ASSIGN(const Mesh mesh, mesh_of(train, world_size, 0));
  Sharding sharding;
  sharding.mesh = mesh;
  sharding.keep_parameters = keeps_parameters(train);
  // A shard that is the whole block needs no second place for its gradient.
  sharding.whole_gradients = keeps_gradients(train) || mesh.degree(kShardDims) == 1;
  return sharding;
}

std::string describe_sharding(const TrainSpec& train) {
  if (train.strategy != Strategy::kHybrid) return to_word(train.strategy);
  return "hybrid of " + std::to_string(train.shard_group);
}

}  // namespace hpctl
