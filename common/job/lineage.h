// SPDX-License-Identifier: Apache-2.0
// The lineage: what must outlive every node lives in the checkpoint directory.
//
//   DIR/generations/G.json   one record per generation, created exclusively and durable before any
//                            rank of G trains; two racing controllers: one creates G
//   DIR/step-N.gG/           a checkpoint; it exists only if its manifest.json is complete
//
// Validity is lineage. Walk from the newest generation back through `parent`: generation G started
// at start_step(G). A checkpoint (N, g) counts only if g is on that chain and no later generation
// of the chain started at a step < N. So a late commit by a stale generation is ignored, never
// raced. docs/formats.md gives the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

struct GenerationMember {
  int32_t rank = 0;
  std::string node;
  std::string instance_id;
};

// A successor needs this about a node, as long as it is the same instance: that it must not get
// ranks, or (`by` empty) only that it was rebooted lately.
struct QuarantinedNode {
  std::string node;
  std::string instance_id;
  std::string by;
  std::string reason;
  bool hardware = false;
  int64_t since_wall_ms = 0;
  int64_t until_wall_ms = 0;  // 0 = until released
  // Since when the cluster has had a request to replace or reboot it; 0 = no request. If the job
  // was requeued and has the node again, that has happened.
  int64_t recovery_wall_ms = 0;
  bool reboot = false;           // of hardware: a reboot is wanted
  int64_t rebooted_wall_ms = 0;  // when its newest reboot was asked for; 0 = none lately
};

struct GenerationRecord {
  uint64_t generation = 0;
  uint64_t parent = 0;       // previous generation of the chain; 0 = none
  uint64_t start_step = 0;   // last completed step it starts from
  std::string checkpoint;    // name of the step-N.gG it resumes from, "" = from the seed or memory
  bool from_memory = false;  // what the workers of `parent` had sealed when they ended
  std::string committed;     // from memory: the newest checkpoint on disk then; "" = there was none
  uint64_t job = 0;
  std::string job_name;
  std::vector<GenerationMember> members;
  std::string reason;                // why this generation was started; one line
  int64_t restarts_used = 0;         // restart budget consumed so far
  std::vector<std::string> damaged;  // checkpoints found damaged and no longer to be used
  int64_t created_wall_ms = 0;       // label only
  uint64_t restart_count = 0;        // of the Slurm job, when this was recorded
  std::vector<QuarantinedNode> quarantined;
  std::string job_uuid;  // made at submit; "" in records of releases before it
  // The controller's order that created it. A controller tells by it whether the record is of an
  // order that it has withdrawn. "" in records of releases before it: nobody's withdrawn order.
  std::string order;
  // Generations between `parent` and this one with records that were withdrawn: nothing began with
  // them, and no other controller made them.
  std::vector<uint64_t> withdrawn;
};

// Returns whether the job recorded that generation. Job numbers repeat in other homes, and on
// clusters that start counting again.
bool is_recorded_by(const GenerationRecord& record, uint64_t job, const std::string& job_uuid);
bool of_same_job(const GenerationRecord& a, const GenerationRecord& b);

std::string to_json_text(const GenerationRecord& record);
// JOBDIR/quarantined-R.json: what the life of a Slurm job with restart count R knew of its nodes
// when it asked for a requeue. Reading: empty without a file.
Outcome write_quarantined(const std::string& job_dir, uint64_t restart_count,
                          const std::vector<QuarantinedNode>& nodes);
Result<std::vector<QuarantinedNode>> read_quarantined(const std::string& job_dir,
                                                      uint64_t restart_count);
Result<GenerationRecord> generation_record_from_json(const std::string& text);

// Creates DIR/generations/G.json. kAlreadyExists when that generation exists already (whatever its
// content: compare with read_generation to learn whether it is ours).
Outcome create_generation(const std::string& checkpoint_dir, const GenerationRecord& record);
Result<GenerationRecord> read_generation(const std::string& checkpoint_dir, uint64_t generation);

// All records, ascending by generation; a directory without generations/ gives an empty list.
// Damaged records are an error that names the file.
Result<std::vector<GenerationRecord>> read_lineage(const std::string& checkpoint_dir);

// The chain of a generation, newest first; empty without its record.
std::vector<GenerationRecord> chain_of(const std::vector<GenerationRecord>& records,
                                       uint64_t generation);
std::vector<GenerationRecord> chain_of_newest(const std::vector<GenerationRecord>& records);
// Generations that a record of the same job calls withdrawn. `records`: ascending.
std::set<uint64_t> find_withdrawn(const std::vector<GenerationRecord>& records);

// Generations whose checkpoints belong to the job of the newest record: its own, and those that it
// continues. Everything else in the directory is another job's.
std::set<uint64_t> generations_of_newest_job(const std::vector<GenerationRecord>& records);

struct CheckpointRef {
  uint64_t step = 0;
  uint64_t generation = 0;
  std::string name() const;  // "step-N.gG"
  auto operator<=>(const CheckpointRef&) const = default;
};
// Parses "step-N.gG"; nullopt for any other name (also for leading zeros and signs).
std::optional<CheckpointRef> parse_checkpoint_name(const std::string& name);

// True when the lineage rule above accepts the checkpoint. With an empty chain (a directory written
// without a controller) every checkpoint is valid. Records' `damaged` lists are honoured.
bool valid_by_lineage(const CheckpointRef& checkpoint, const std::vector<GenerationRecord>& chain);

// The newest checkpoint that the records of the chain, newest first, say was committed in their
// directory, and that is valid by lineage; "" = they know of none. It need not be there any more.
std::string find_known_commit(const std::vector<GenerationRecord>& chain);

// Returns whether the checkpoint is committed. A listing proves "no" (entry_exists() in file.h).
Result<bool> has_manifest(const std::string& step_dir);

// Checkpoints with a manifest in DIR, ascending by (step, generation), unfiltered.
Result<std::vector<CheckpointRef>> list_checkpoints(const std::string& checkpoint_dir);

// The newest checkpoint that is valid on this chain and not in `exclude` (names).
Result<std::optional<CheckpointRef>> latest_on_chain(const std::string& checkpoint_dir,
                                                     const std::vector<GenerationRecord>& chain,
                                                     const std::vector<std::string>& exclude);
// Likewise on the chain of the newest generation; nullopt when there is none.
Result<std::optional<CheckpointRef>> latest_valid_checkpoint(
    const std::string& checkpoint_dir, const std::vector<std::string>& exclude);

}  // namespace hpctl
