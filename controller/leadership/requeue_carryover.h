// SPDX-License-Identifier: Apache-2.0
// The state that a session of a Slurm job takes over from the one before its requeue: the newest
// record may be older than that session's findings, and Slurm may have allocated a node that was to
// be excluded (docs/decisions/0903). Also the state that every controller takes over from earlier
// ones: the job's totals so far, from the status file, which the newest of them wrote last.
#pragma once

#include <string>
#include <vector>

#include "common/job/ids.h"
#include "common/job/lineage.h"
#include "common/job/paths.h"
#include "controller/core/events.h"

namespace hpctl {

// Empty in the first session, and once a generation of this session is on record: then it has been
// handled. Unreadable parts are logged and left out.
core::RequeueCarryover read_former_life(const std::string& job_dir, JobId job,
                                        uint64_t restart_count,
                                        const std::vector<GenerationRecord>& lineage);

// Where no status file can be read, the job was submitted when its first generation was recorded.
core::JobTotals read_totals(const HomePaths& paths, JobId job,
                            const std::vector<GenerationRecord>& lineage);

}  // namespace hpctl
