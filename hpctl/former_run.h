// SPDX-License-Identifier: Apache-2.0
// A job file that is submitted again begins anew, in a checkpoint directory of the new job. Who
// wanted to go on learns it before the steps are trained a second time.
#pragma once

#include <string>

#include "common/job/job_spec.h"
#include "common/job/paths.h"

namespace hpctl {

// Names the newest job of this name whose checkpoints the new job will not use, and how to use
// them; "" = there is none, or the job file says where to begin.
std::string describe_former_run(const JobSpec& spec, const HomePaths& paths);

}  // namespace hpctl
