// SPDX-License-Identifier: Apache-2.0
// The proxy in a batch script for a job's controller under the cluster controller. Slurm knows a
// job by its batch script: the script's end, its signals and its exit status are the job's. So this
// process stays there, requests the controller, passes the end on in both directions, and takes no
// other part.
#pragma once

#include <optional>

#include "common/base/fd.h"
#include "controller/leadership/options.h"

namespace hpctl {

// The time without an answer of a controller after which the job counts as having none: longer than
// its agents live without one.
inline constexpr int kSilenceMs = 90'000;

// The exit code, as the job's controller has it (job_mode.h); kExitFault after such a silence, so
// that the batch script asks again. nullopt = the cluster controller does
// not take the job; the reason has been logged, and the job wants its controller here.
std::optional<int> batch_proxy(const ControllerOptions& options, const UniqueFd& signals,
                               int silence_ms = kSilenceMs);

}  // namespace hpctl
