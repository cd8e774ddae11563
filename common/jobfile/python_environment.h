// SPDX-License-Identifier: Apache-2.0
// `env: auto`, decided when a job is submitted: what lies beside the job file says how its command
// is run.
#pragma once

#include <optional>
#include <string>

#include "common/job/job_spec.h"

namespace hpctl {

// Replaces kind `auto` by the first that exists, in this order: a container
// (slurm.container.image), a virtual environment (.venv), a uv project (pyproject.toml), none; and
// completes `path`. `auto` is `none` for workload.train, which needs no Python. `directory` is the
// directory of the job file. A requested environment that does not exist is a problem of the key
// env.
std::optional<SpecProblem> choose_environment(JobSpec& spec, const std::string& directory);

}  // namespace hpctl
