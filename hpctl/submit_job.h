// SPDX-License-Identifier: Apache-2.0
// What `hpctl submit` does once it has a job, for verbs that make one themselves.
#pragma once

#include <string>

#include "common/job/job_spec.h"
#include "hpctl/command_line.h"

namespace hpctl {

// Checks the job and submits it as the options of `hpctl submit` in `invocation` say. `file` is the
// job file as the user named it. Returns the exit status of the verb.
int submit_job(const Invocation& invocation, JobSpec spec, const std::string& file);

}  // namespace hpctl
