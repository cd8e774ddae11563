// SPDX-License-Identifier: Apache-2.0
// How a strategy divides the state of a job over its ranks. The one place that says so: controller,
// plan and engine ask here.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/job/train_spec.h"
#include "common/layout/mesh.h"

namespace hpctl {

// The effect of a strategy on the memory and the messages of a rank. Optimizer state is always
// sharded over dp_shard.
//
//   strategy        dp_shard   whole parameters kept        whole gradients kept
//   full            W          while a block computes       while a block computes
//   shard_grad_op   W          all blocks, all the step     while a block computes
//   optimizer       W          all blocks, all the step     all blocks, all the step
//   no_shard        1          all blocks, always           all blocks, all the step
//   hybrid          group      while a block computes       while a block computes
//
// (ZeRO-3, ZeRO-2, ZeRO-1, DDP and HSDP. reshard_after_forward = never keeps the parameters of full
// and hybrid as in shard_grad_op. Parameters of a frozen model then stay from step to step.) Whole
// gradients are reduced once a step, others once per micro-batch
// (docs/decisions/1001-strategies.md).
struct Sharding {
  Mesh mesh;
  bool keep_parameters = false;
  bool whole_gradients = false;
};

// The number of parts that parameters and optimizer state are divided into: the mesh's parts().
int32_t state_parts(const TrainSpec& train, int32_t world_size, int32_t workers_per_node);
// The ranks of a job. kInvalidArgument as sharding_of(), or where the world is no multiple of the
// ranks that share samples.
Result<Mesh> mesh_of(const TrainSpec& train, int32_t world_size, int32_t workers_per_node);

// Returns whether gathered parameters, and unsharded gradients, of all blocks stay for the whole
// step; parameters of a frozen model then for all steps.
bool keeps_parameters(const TrainSpec& train);
bool keeps_gradients(const TrainSpec& train);
// Returns whether a GPU keeps its shard of the weights in bf16 beside fp32 parameters: gathers
// round nothing then. Otherwise each block is gathered once a step from several shards.
bool keeps_rounded_weights(const TrainSpec& train, int32_t shards);

// kInvalidArgument when the world is no multiple of hybrid's shard_group, which the controller has
// replaced by the workers of a node if it was 0.
Result<Sharding> sharding_of(const TrainSpec& train, int32_t world_size);

// The label on which bit-exactness depends, for the environment of a checkpoint: "full", "hybrid of
// 8".
std::string describe_sharding(const TrainSpec& train);

}  // namespace hpctl
