// SPDX-License-Identifier: Apache-2.0
// A node of a cluster's job before its holder starts.
#pragma once

#include <string>

#include "common/job/paths.h"

namespace hpctl::holder {

// As long as limits.launch may be by default. The controller bounds the start itself.
inline constexpr int kPrepareAttempts = 900;

// Takes the job's environment if the node was started from outside of the job
// (common/job/job_files.h), creates the node's directories that do not exist yet, on local disk
// and in the job's directory, and sends stdout and stderr to the node's log, where people look; the
// step's own output keeps earlier lines. `paths` are HomePaths::of_job. Where storage fails, tries
// again every second, `attempts` times in all: an exit would look like a broken node.
Outcome prepare_job_node(const HomePaths& paths, JobId job, const std::string& node,
                         int attempts = kPrepareAttempts);

// After the node has ended: Slurm ends whatever a step has left when its tasks have exited, and a
// successor of the job's controller that an agent of this node started is such a left-over. So the
// step's task, the holder, stays until that controller has ended Slurm's job, at most 30 s.
void wait_for_successor_here(const HomePaths& paths, const std::string& node);

}  // namespace hpctl::holder
