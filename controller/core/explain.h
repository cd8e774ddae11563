// SPDX-License-Identifier: Apache-2.0
// Why a job is in its present state: the answer of `hpctl why`, from the history alone.
#pragma once

#include <string>
#include <vector>

#include "controller/core/types.h"

namespace hpctl::core {

// The entries that led to the job's newest state change, found by following `because` back, oldest
// first. For a finished job also its submission and every fault that it survived. `log` holds the
// history in order; entries of other jobs are ignored. Empty if the log has nothing about the job.
std::vector<LogEntry> explain(const std::vector<LogEntry>& log, JobId job);

// "RUNNING: generation 2 completed step 41; it began with: worker 3 on n1 died of SIGKILL ..."
std::string summarize(const std::vector<LogEntry>& chain);

}  // namespace hpctl::core
