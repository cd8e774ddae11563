// SPDX-License-Identifier: Apache-2.0
// A checkpoint directory in memory: generation records created exclusively, checkpoints, and the
// real lineage rule over both. Each checkpoint carries the history of the weights in it, so that
// the end of a run can tell which generation trained which step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/lineage.h"
#include "common/worker/seal.h"
#include "controller/core/types.h"

namespace hpctl::sim {

// Steps from+1 .. to, trained by `generation`.
struct Segment {
  uint64_t generation = 0;
  uint64_t from = 0;
  uint64_t to = 0;
  bool operator==(const Segment&) const = default;
};
using History = std::vector<Segment>;
// Every step 1 .. history's end exactly once?
bool is_contiguous(const History& history);

// A state that a rank's arena has sealed.
struct SealedState {
  Seal seal;
  History history;
};

struct StoredCheckpoint {
  History history;
  uint64_t digest = 0;  // of the decisions that led to it
  bool damaged = false;
  int64_t committed_ms = 0;
};

struct Found {
  std::string name;  // "" = none
  uint64_t step = 0;
  uint64_t newest_generation = 0;
  std::vector<core::WithdrawnRecord> withdrawn = {};  // newer ones, which were left out
};

struct Pruned {
  std::string verified;   // what remains; "" = nothing was to be deleted
  std::string to_verify;  // the newest valid one, if the order asks
  std::vector<std::string> deleted;
  std::string problem;
};

class Directory;
// The chain that a new record continues: without the records that it calls withdrawn.
std::vector<GenerationRecord> chain_before(const Directory& place, const GenerationRecord& next);

enum class Creation { kCreated, kOursAlready, kTaken };

class Directory {
 public:
  Found find(const std::vector<std::string>& exclude) const;
  // Without the records that the order calls withdrawn.
  Found find(const core::FindCheckpoint& order, const std::vector<std::string>& exclude) const;
  // A second reader's answer on a checkpoint: "" = it is sound, or that is no name. What is missing
  // is damaged.
  std::string confirm(const std::string& name) const;
  // `author` tells our own repetition from another controller's record.
  Creation create(const GenerationRecord& record, const std::string& author);
  // False when that checkpoint exists already.
  bool commit(const CheckpointRef& ref, StoredCheckpoint checkpoint);
  // Creates the records that only `other` has. False: both have one generation, of two authors.
  bool copy_records(const Directory& other);
  // Somebody deletes it; nothing happens where it is not there.
  void remove(const CheckpointRef& ref) { checkpoints_.erase(ref); }
  void remove_checkpoints() { checkpoints_.clear(); }
  // A checkpoint newer than `found` that was committed on this chain, and is neither there nor
  // among the damaged ones; "" = none. `committed_step`: of the job's row.
  std::string find_lost(uint64_t committed_step, const Found& found,
                        const std::vector<std::string>& damaged) const;
  // A disk forgets a bit. Precondition: the checkpoint exists.
  void damage(const CheckpointRef& ref) { checkpoints_.at(ref).damaged = true; }

  // As delete_older_checkpoints() with keep >= 1, every byte read. Every checkpoint here has a
  // manifest.
  Pruned prune(const core::PruneCheckpoints& order, size_t keep);

  // Another job takes the directory (--take-directory), continues the chain, and saves `steps` more
  // steps. What was there stays.
  void take(uint64_t steps, int64_t now_ms);
  bool is_taken() const { return is_taken_; }

  uint64_t newest_generation() const { return records_.empty() ? 0 : records_.back().generation; }
  const GenerationRecord* record(uint64_t generation) const;
  const StoredCheckpoint* checkpoint(const CheckpointRef& ref) const;
  const std::map<CheckpointRef, StoredCheckpoint>& checkpoints() const { return checkpoints_; }
  const std::vector<GenerationRecord>& records() const { return records_; }

 private:
  Found find_on(const std::vector<GenerationRecord>& records,
                const std::vector<std::string>& exclude) const;

  std::vector<GenerationRecord> records_;  // ascending
  std::map<uint64_t, std::string> authors_;
  std::map<CheckpointRef, StoredCheckpoint> checkpoints_;
  bool is_taken_ = false;
};

// The error of an order that comes after take().
inline constexpr char kTakenBy[] = "the checkpoint directory belongs to another job";
// The error of an order that the file system did not carry out.
inline constexpr char kStorageError[] = "input/output error";

}  // namespace hpctl::sim
