// SPDX-License-Identifier: Apache-2.0
// Actions on the checkpoint directory, each answered by one event. They do file I/O on what may be
// a shared file system and may block: never call them on the owner thread.
#pragma once

#include "common/job/lineage.h"
#include "common/job/paths.h"
#include "controller/core/core.h"

namespace hpctl {

// CheckpointChosen: the newest checkpoint that is valid by lineage and not excluded. If the order
// has a claim of damage, that is read again first, past the page cache; what is confirmed is
// excluded. ActionFailed when the directory, or what was claimed, cannot be read. It is permanent
// when the newest manifest is of a newer release, or belongs to another name. `committed_step`: of
// the newest checkpoint that the job knew when the search was ordered.
core::EventBody find_checkpoint(ActionId id, const core::FindCheckpoint& action,
                                const JobSpec& spec, uint64_t committed_step = 0);

// GenerationRecorded when the record is durable and the generation's rendezvous directory exists,
// also when an earlier attempt of ours (identical except its time) created the record;
// GenerationTaken when it is another controller's. Rendezvous directories of older generations are
// removed.
core::EventBody record_generation(ActionId id, const core::RecordGeneration& action,
                                  const GenerationRecord& record, const std::string& directory,
                                  const HomePaths& paths);

// The record the action asks for.
GenerationRecord make_record(ActionId id, const core::RecordGeneration& action,
                             const core::State& state, int64_t wall_ms);

// Port for MASTER_PORT of a generation: chosen when the generation is recorded, the same for all
// its nodes and after a restart of the controller. 0 when there is none.
uint16_t rendezvous_port(const HomePaths& paths, JobId job, Generation generation);

}  // namespace hpctl
