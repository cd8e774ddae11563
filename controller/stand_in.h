// SPDX-License-Identifier: Apache-2.0
// In a batch script, the place of a job's controller that the cluster controller runs. Slurm knows
// a job by its batch script: what ends it, where signals go, whose exit status is the job's. So
// somebody stays there who asks for the controller, passes the end on in both directions, and takes
// no part in what goes on between.
#pragma once

#include <optional>

#include "common/base/fd.h"
#include "controller/options.h"

namespace hpctl {

// The exit code, as the job's controller has it (job_mode.h). nullopt = the cluster controller does
// not take the job; the reason has been logged, and the job wants its controller here.
std::optional<int> stand_in(const ControllerOptions& options, const UniqueFd& signals);

}  // namespace hpctl
