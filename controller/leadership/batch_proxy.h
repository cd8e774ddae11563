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

// How long no controller may answer before the job is taken to have none: longer than its agents
// live without one.
inline constexpr int kSilenceMs = 90'000;

// The exit code, as the job's controller has it (job_mode.h); kExitFault after such a silence, so
// that the batch script asks again. nullopt = the cluster controller does
// not take the job; the reason has been logged, and the job wants its controller here.
std::optional<int> batch_proxy(const ControllerOptions& options, const UniqueFd& signals,
                               int silence_ms = kSilenceMs);

}  // namespace hpctl
