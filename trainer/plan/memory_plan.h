// SPDX-License-Identifier: Apache-2.0
// The content of one worker's memory at the peak of a step, by component. The state and the buffers
// follow from the layout exactly; activations are the tensors that autograd keeps, taken from
// model/ operation by operation. Everything else (the program and its libraries, allocator
// rounding) is not in the plan. docs/decisions/1301-plan.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "common/job/train_spec.h"
#include "common/layout/block_layout.h"
#include "common/worker/workload.h"

namespace hpctl {

// The subject of a plan: a training job on this many workers.
struct PlanSetting {
  TrainSpec train;
  int32_t nodes = 1;
  int32_t min_nodes = 0;  // fewest to go on with after losses (nodes.min); 0 = nodes: never fewer
  int32_t workers_per_node = 1;
  // Operations between products of matrices are fused, on a GPU by the kernels that NVRTC compiles
  // (the log says if there are none; more is kept then). Attention is fused on a CPU, and on a GPU
  // in bf16 and fp16: its scores are never stored. The state has one copy on a GPU. In host memory,
  // a CPU's state or the copies of a GPU's, it has two slots (docs/formats.md, State arena) and one
  // more for a save to read from. With copies at peers it has four, plus the slots of the copies.
  bool gpu = false;
  bool snapshots = true;  // copies at peers are wanted (recovery.snapshot)

  int32_t world_size() const { return nodes * workers_per_node; }
  int32_t fewest_nodes() const { return min_nodes == 0 ? nodes : min_nodes; }
  bool may_shrink() const { return fewest_nodes() < nodes; }
};

// The setting of the generation that the workload describes.
PlanSetting setting_of(const Workload& workload, bool gpu);
// The setting of a job with workload.train.
PlanSetting setting_of(const JobSpec& spec, bool gpu);

// Name of that part of a MemoryPlan.
inline constexpr const char* kPeerSnapshotsPart = "snapshots at peers";

// Likewise, of MemoryPlan::host.
inline constexpr const char* kHostCopiesPart = "copies of the state";

// The private memory of a waiting standby of the trainer (recovery.standbys), measured: 50 to 57
// MiB. LibTorch's some 90 MiB are shared with the workers; it has no state and no GPU's context.
inline constexpr double kStandbyBytes = 60.0 * (1 << 20);

struct MemoryPart {
  const char* name;  // "parameters", "gradients", "moments", ...
  double bytes = 0;  // of one worker, at the peak of a step
  std::string why;   // how it comes about, a few words
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;
  // What a worker on a GPU has in the host's memory: what memory.offload has moved there, or copies
  // of the state, if there is room for them.
  std::vector<MemoryPart> host;
  double total() const;
};

// Bytes of an element of parameters and activations during computation.
double compute_bytes(const TrainSpec& train);
// Bytes of a parameter for the optimizer, and of one of its two moments.
double param_bytes(const TrainSpec& train);
double moment_bytes(const TrainSpec& train);
// Workers that share one copy of parameters and moments.
int32_t shard_count(const PlanSetting& setting);
// Each worker has one more slot of its own and two for a peer's copies: no other rank has the same
// part, and the state, or copies of it, are in slots of host memory.
bool keeps_copies(const PlanSetting& setting);

// On all nodes. `blocks`: what is trained (arch/lora.h).
MemoryPlan plan_memory(const PlanSetting& setting, const std::vector<Block>& blocks);

// Bytes of the shards of one checkpoint: parameters and both moments in fp32, whatever type workers
// store. Headers and the manifest come on top, under 1 % of a model of 100 M parameters.
double checkpoint_bytes(const std::vector<Block>& blocks);

// Bytes of a worker, at most, whether all nodes are there or as few as the job may go on with: what
// has to fit. Fewer nodes have larger shards, and copies at peers begin with two.
double most_memory(const PlanSetting& setting, const std::vector<Block>& blocks);

}  // namespace hpctl
