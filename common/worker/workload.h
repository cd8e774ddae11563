// SPDX-License-Identifier: Apache-2.0
// The resolved workload: all that one hptrain process needs to know, as one JSON document on
// descriptor kWorkloadFd. The worker reads no YAML and no other configuration. The controller fills
// the generation-wide part; the agent fills rank, local_rank and node for each worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"

namespace hpctl {

struct Workload {
  uint64_t job = 0;
  std::string name;
  uint64_t generation = 0;
  uint64_t parent_generation = 0;  // generation of the state it starts from; 0 = none
  int32_t rank = 0;
  int32_t local_rank = 0;
  int32_t world_size = 1;
  int32_t workers_per_node = 1;
  std::string node;
  std::string rendezvous_dir;              // this generation's own directory; workers create it
  std::string bind_address = "127.0.0.1";  // address the communicator listens on
  std::string resume_checkpoint;  // absolute path of step-N.gG, or "" to start from the seed
  uint64_t start_step = 0;        // step of resume_checkpoint; the first step done is start_step+1
  bool from_memory = false;       // start_step is sealed in the arena: no checkpoint is read
  // With from_memory: ranks in ascending order that have nothing of it; others have their parts.
  std::vector<int32_t> refilled = {};
  // With from_memory, where another number of ranks goes on: into how many parts the state in
  // memory is divided; each rank may have any part of it. 0 = as this generation divides it.
  int32_t former_parts = 0;
  bool is_last = false;        // with from_memory: no step is trained; it saves, and ends
  uint64_t durable_step = 0;   // of the newest checkpoint, as far as the controller knows
  std::string checkpoint_dir;  // absolute
  bool claimed = false;        // the controller has claimed it: owner.json is there
  std::string ledger_dir;      // "" = no ledger; else JSONL file g{G}.r{R}.jsonl inside
  std::string metrics_path;    // rank 0 appends a JSON line per step; "" = off
  CheckpointSpec checkpoint;
  int64_t storage_limit_ms = local_limits().storage_ms;  // so long saves may fail for storage
  // From SIGTERM to SIGKILL, at least: at the time limit it may be longer.
  int64_t last_checkpoint_ms = local_limits().last_checkpoint_ms;
  SnapshotSpec snapshot;
  TrainSpec train;
  std::string owner;  // the UUID in owner.json; "" = an older controller does not say
};

// The rank, this one where none is named, has nothing in memory.
bool is_refilled(const Workload& workload, int32_t rank);
inline bool is_refilled(const Workload& workload) { return is_refilled(workload, workload.rank); }

std::string to_json_text(const Workload& workload);
Result<Workload> workload_from_json(const std::string& text);

}  // namespace hpctl
