// SPDX-License-Identifier: Apache-2.0
// Checks, before anything is started, for problems that would end a job at once. Each check costs a
// few system calls; the first problem is returned, one line with the remedy. kInvalidArgument: a
// mistake in the job file.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/job/paths.h"

namespace hpctl {

// For the local backend, where the nodes are this machine. Leaves nothing behind.
Outcome check_before_submit(const JobSpec& spec, const HomePaths& paths);

// For Slurm: only checks that hold for every node if directories are shared as they must be. The
// view of a container or another node is not judged from here, nor a program that does not lie
// beside the job file.
Outcome check_before_slurm_submit(const JobSpec& spec, const HomePaths& paths,
                                  const std::string& job_file);

// A warning that Slurm ends the job before its last checkpoint may be complete: limits and
// slurm.signal contradict each other. "" = they do not.
std::string describe_short_notice(const JobSpec& spec);

}  // namespace hpctl
