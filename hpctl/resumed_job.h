// SPDX-License-Identifier: Apache-2.0
// A job that has ended, as the job that goes on from its newest checkpoint (`hpctl resume`).
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/job/paths.h"
#include "controller/publish/status_files.h"

namespace hpctl {

// The job as it was submitted, with the checkpoint directory that it used. kFailedPrecondition: it
// has not ended, or another job has gone on in that directory.
Result<JobSpec> spec_to_resume(const HomePaths& paths, const JobView& view);

// For people: from where the job will start. kFailedPrecondition: it has no step left to train.
Result<std::string> describe_start(const JobSpec& spec);

}  // namespace hpctl
