// SPDX-License-Identifier: Apache-2.0
// The job file that a verb was given.
#pragma once

#include <optional>
#include <string>

#include "common/base/job_spec.h"
#include "hpctl/terminal.h"

namespace hpctl {

// nullopt: all its mistakes were printed on terminal.err, and the verb ends with kExitUsage.
std::optional<JobSpec> read_job_file(const Terminal& terminal, const std::string& path);

// The first problem of a job that was changed since, as "KEY: MESSAGE"; "" = none.
std::string first_problem(const JobSpec& spec);

}  // namespace hpctl
