// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/mesh.h"

#include "common/base/check.h"

namespace hpctl {

int32_t Mesh::world_size() const {
  int32_t product = 1;
  for (const int32_t degree : degrees_) product *= degree;
  return product;
}

int32_t Mesh::stride(MeshDim dim) const {
  int32_t product = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < degrees_.size(); ++d) product *= degrees_[d];
  return product;
}

int32_t Mesh::coordinate(int32_t rank, MeshDim dim) const {
  HP_CHECK(rank >= 0 && rank < world_size());
  return rank / stride(dim) % degree(dim);
}

std::vector<int32_t> Mesh::group(int32_t rank, MeshDim dim) const {
  const int32_t first = rank - coordinate(rank, dim) * stride(dim);
  std::vector<int32_t> members;
  for (int32_t i = 0; i < degree(dim); ++i) members.push_back(first + i * stride(dim));
  return members;
}

Result<Sharding> sharding_of(const TrainSpec& train, int32_t world_size) {
  const Strategy strategy = train.strategy;
  int32_t shards = world_size;
  if (strategy == Strategy::kNoShard) shards = 1;
  if (strategy == Strategy::kHybrid) {
    if (train.shard_group < 1 || world_size % train.shard_group != 0) {
      return Error{ErrorCode::kInvalidArgument,
                   "parallelism.shard_group: expected a divisor of the number of workers (" +
                       std::to_string(world_size) + "), found " +
                       std::to_string(train.shard_group)};
    }
    shards = static_cast<int32_t>(train.shard_group);
  }
  Sharding sharding;
  sharding.mesh = Mesh(world_size / shards, shards);
  sharding.keep_parameters = train.reshard_after_forward == Reshard::kNever ||
                             strategy == Strategy::kNoShard || strategy == Strategy::kOptimizer ||
                             strategy == Strategy::kShardGradOp;
  // A shard that is the whole block needs no second place for its gradient.
  sharding.whole_gradients = strategy == Strategy::kOptimizer || shards == 1;
  return sharding;
}

std::string describe_sharding(const TrainSpec& train) {
  if (train.strategy != Strategy::kHybrid) return to_word(train.strategy);
  return "hybrid of " + std::to_string(train.shard_group);
}

}  // namespace hpctl
