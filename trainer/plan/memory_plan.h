// SPDX-License-Identifier: Apache-2.0
// What one worker's memory holds at the peak of a step, by component. The state and the buffers
// follow from the layout exactly; activations are the tensors that autograd keeps, read off
// model/ operation by operation. Everything else (the program and its libraries, allocator
// rounding) is not in the plan. docs/decisions/1301-plan.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/job_spec.h"
#include "common/base/train_spec.h"
#include "common/base/workload.h"
#include "trainer/parallel/block_layout.h"

namespace hpctl {

// What is planned: a training job on so many workers.
struct PlanSetting {
  TrainSpec train;
  int32_t nodes = 1;
  int32_t min_nodes = 0;  // fewest to go on with after losses (nodes.min); 0 = nodes: never fewer
  int32_t workers_per_node = 1;
  // What lies between products of matrices is fused, on a GPU by the kernels that NVRTC compiles
  // (its log says where there are none; more is kept then). Attention is on a CPU, and on a GPU in
  // bf16 and fp16: its scores are never stored. The state has one copy on a GPU; on a CPU it has
  // two slots (docs/formats.md, State arena), where copies at peers are kept three and those of the
  // copies, and a slot more for a save to read from.
  bool gpu = false;
  bool snapshots = true;  // copies at peers are wanted (recovery.snapshot)

  int32_t world_size() const { return nodes * workers_per_node; }
  int32_t fewest_nodes() const { return min_nodes == 0 ? nodes : min_nodes; }
  bool may_shrink() const { return fewest_nodes() < nodes; }
};

// Of the generation that the workload describes.
PlanSetting setting_of(const Workload& workload, bool gpu);
// Of a job with workload.train.
PlanSetting setting_of(const JobSpec& spec, bool gpu);

// Name of that part of a MemoryPlan.
inline constexpr const char* kPeerSnapshotsPart = "snapshots at peers";

// What a standby of the trainer (recovery.standbys) holds of its own while it waits, measured: 50
// to 57 MiB. LibTorch's some 90 MiB it shares with the workers; it has no state and no GPU's
// context.
inline constexpr double kStandbyBytes = 60.0 * (1 << 20);

// Elements of an offloaded state that pass through a GPU at a time, at most: 16 MiB of fp32, enough
// for a link's full bandwidth.
inline constexpr int64_t kOffloadPiece = int64_t{1} << 22;

struct MemoryPart {
  const char* name;  // "parameters", "gradients", "moments", ...
  double bytes = 0;  // of one worker, at the peak of a step
  std::string why;   // how it comes about, a few words
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;
  std::vector<MemoryPart> host;  // what memory.offload has moved to the host's memory
  double total() const;
};

// Of an element of parameters and activations as they are computed with.
double compute_bytes(const TrainSpec& train);
// Of a parameter where the optimizer steps from it, and of one of its two moments.
double param_bytes(const TrainSpec& train);
double moment_bytes(const TrainSpec& train);
// Workers that share one copy of parameters and moments.
int32_t shard_count(const PlanSetting& setting);
// Each worker has one more slot of its own and two for a peer's copies: no other rank has the same
// part, and the state is in host memory.
bool keeps_copies(const PlanSetting& setting);
// Whether gathered parameters, and unsharded gradients, of all blocks stay for the whole step;
// parameters of a frozen model then for all steps.
bool keeps_parameters(const TrainSpec& train);
bool keeps_gradients(const TrainSpec& train);
// Whether a layer (from 0) runs forward once more in the backward pass.
bool is_recomputed(const TrainSpec& train, int64_t layer);
// What leaves a GPU for host memory (memory.offload); parameters never without the optimizer.
bool offloads_optimizer(const TrainSpec& train);
bool offloads_parameters(const TrainSpec& train);
bool offloads_activations(const TrainSpec& train);

// On all nodes. `blocks`: what is trained (arch/lora.h).
MemoryPlan plan_memory(const PlanSetting& setting, const std::vector<Block>& blocks);

// Of the shards of one checkpoint: parameters and both moments in fp32, whatever the type in which
// workers keep them. Headers and the manifest come on top, under 1 % of a model of 100 M
// parameters.
double checkpoint_bytes(const std::vector<Block>& blocks);

// Bytes of a worker, at most, whether all nodes are there or as few as the job may go on with: what
// has to fit. Fewer nodes have larger shards, and copies at peers begin with two.
double most_memory(const PlanSetting& setting, const std::vector<Block>& blocks);

}  // namespace hpctl
