// SPDX-License-Identifier: Apache-2.0
// `hpctl nodes release` for a job that is in Slurm's queue after a requeue. It has no controller.
// The next one takes over the quarantine of its nodes from files in the job's directory
// (controller/leadership/requeue_carryover.h), so the node is released there.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/job/ids.h"
#include "common/job/paths.h"

namespace hpctl {

// What was done, one line. nullopt: the job is not in the queue, or would use the node anyway.
Result<std::optional<std::string>> release_in_queue(const HomePaths& paths, JobId job,
                                                    const std::string& node);

}  // namespace hpctl
