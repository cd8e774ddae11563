// SPDX-License-Identifier: Apache-2.0
// The chains of a checkpoint directory. A chain is a row of generations, each with the one before
// as its parent: the checkpoints of one job, and of the earlier jobs that it continued. A job that
// begins without them begins another chain. A chain has the number of its newest generation.
//
// Jobs resume only from the chain of the newest record. adopt_chain() appends a record that makes
// another chain that one. Records are never changed or removed.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/lineage.h"

namespace hpctl {

struct CheckpointChain {
  std::vector<GenerationRecord> records;  // newest first, down to the one without a parent
  std::set<uint64_t> generations;         // of these, those that no newer chain has too

  uint64_t number() const { return records.front().generation; }
  const GenerationRecord& newest() const { return records.front(); }
};

// `job 3 "llama"`: the job that recorded it.
std::string job_of(const GenerationRecord& record);

// Newest first. `records`: as read_lineage() returns them.
std::vector<CheckpointChain> find_chains(const std::vector<GenerationRecord>& records);

// The chain whose `generations` has this one; nullptr: there is no record of it.
const CheckpointChain* find_chain_of(const std::vector<CheckpointChain>& chains,
                                     uint64_t generation);

// The chain of this number. kNotFound names the chains that there are.
Result<const CheckpointChain*> find_chain(const std::vector<CheckpointChain>& chains,
                                          uint64_t number);

// Creates the record of a generation that continues the chain from its newest valid checkpoint, for
// the job that recorded the chain's newest generation. Returns it. kNotFound: there is no such
// chain, or it has no valid checkpoint. kFailedPrecondition: it is the newest one already.
// kAlreadyExists: a job has recorded a generation meanwhile. `reason`: one line.
Result<GenerationRecord> adopt_chain(const std::string& checkpoint_dir, uint64_t number,
                                     const std::string& reason, int64_t wall_ms);

}  // namespace hpctl
