// SPDX-License-Identifier: Apache-2.0
// `env: auto`, decided when a job is submitted: what lies beside the job file says how its command
// is run.
#pragma once

#include <optional>
#include <string>

#include "common/base/job_spec.h"

namespace hpctl {

// Replaces kind `auto` by what is there, in this order: a container (slurm.container.image), a
// virtual environment (.venv), a uv project (pyproject.toml), none; and completes `path`. `auto` is
// `none` for workload.train, which needs no Python. `directory` is that of the job file.
// What was asked for and is not there is a problem of the key env.
std::optional<SpecProblem> choose_environment(JobSpec& spec, const std::string& directory);

}  // namespace hpctl
