// SPDX-License-Identifier: Apache-2.0
// What a life of a Slurm job finds of the one before its requeue: the newest record may be older
// than what that one found out, and Slurm may have given a node that was to be excluded
// (docs/decisions/0903). And what every controller finds of those before it: what the job's life
// came to so far, by the status file, which the newest of them wrote last.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/lineage.h"
#include "common/base/paths.h"
#include "controller/core/events.h"

namespace hpctl {

// Empty in the first life, and once a generation of this life is on record: then it has been dealt
// with. What cannot be read is logged and left out.
core::RequeueCarryover read_former_life(const std::string& job_dir, JobId job,
                                        uint64_t restart_count,
                                        const std::vector<GenerationRecord>& lineage);

// Where no status file can be read, the job was submitted when its first generation was recorded.
core::JobTotals read_totals(const HomePaths& paths, JobId job,
                            const std::vector<GenerationRecord>& lineage);

}  // namespace hpctl
