// SPDX-License-Identifier: Apache-2.0
// The ranks of a job as a grid, so that every kind of parallelism is a dimension of it.
//
// Dimensions from the slowest to the fastest: pipeline stages, replicas, shards, parts of a
// sequence (context), parts of a layer (tensor), as in TorchTitan: neighbours in rank are
// neighbours in the dimension that communicates most, and a node's ranks, which are consecutive,
// form a shard group before anything else. Only dp_replicate and dp_shard can have more than one
// member in this version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/train_spec.h"

namespace hpctl {

enum class MeshDim : uint8_t { kPp, kDpReplicate, kDpShard, kCp, kTp };

class Mesh {
 public:
  Mesh() = default;  // one rank
  // Degrees >= 1.
  Mesh(int32_t dp_replicate, int32_t dp_shard) : degrees_{1, dp_replicate, dp_shard, 1, 1} {}

  int32_t degree(MeshDim dim) const { return degrees_[static_cast<size_t>(dim)]; }
  int32_t world_size() const;
  int32_t coordinate(int32_t rank, MeshDim dim) const;
  // The ranks that differ from `rank` in `dim` alone, ascending by coordinate; it is one of them.
  std::vector<int32_t> group(int32_t rank, MeshDim dim) const;

 private:
  int32_t stride(MeshDim dim) const;  // ranks between neighbours

  std::array<int32_t, 5> degrees_ = {1, 1, 1, 1, 1};
};

// What a strategy means for the memory and the messages of a rank. Optimizer state is sharded over
// dp_shard always.
//
//   strategy        dp_shard   whole parameters kept        whole gradients kept
//   full            W          while a block computes       while a block computes
//   shard_grad_op   W          all blocks, all the step     while a block computes
//   optimizer       W          all blocks, all the step     all blocks, all the step
//   no_shard        1          all blocks, always           all blocks, all the step
//   hybrid          group      while a block computes       while a block computes
//
// (ZeRO-3, ZeRO-2, ZeRO-1, DDP and HSDP. reshard_after_forward = never keeps the parameters of full
// and hybrid like those of shard_grad_op.) Whole gradients are reduced once a step, others once per
// micro-batch (docs/decisions/1001-strategies.md).
struct Sharding {
  Mesh mesh;
  bool keep_parameters = false;
  bool whole_gradients = false;
};

// kInvalidArgument when the world is no multiple of hybrid's shard_group, which the controller has
// replaced by the workers of a node if it was 0.
Result<Sharding> sharding_of(const TrainSpec& train, int32_t world_size);

// What bit-exactness depends on, for the environment of a checkpoint: "full", "hybrid of 8".
std::string describe_sharding(const TrainSpec& train);

}  // namespace hpctl
