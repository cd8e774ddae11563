// SPDX-License-Identifier: Apache-2.0
// A node of a cluster's job before its holder starts.
#pragma once

#include <string>

#include "common/base/paths.h"

namespace hpctl::holder {

// Makes the node's places, on local disk and in the job's directory, which nobody has made yet, and
// sends stdout and stderr to the node's log, where people look; the step's own output keeps what
// was said before. `paths` are HomePaths::of_job.
Outcome prepare_job_node(const HomePaths& paths, JobId job, const std::string& node);

}  // namespace hpctl::holder
