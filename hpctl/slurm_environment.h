// SPDX-License-Identifier: Apache-2.0
// The Slurm settings of this shell. sbatch obeys SBATCH_* variables. `hpctl submit` takes those
// with the meaning of a key which the job file leaves out, and refuses the others by name:
// otherwise it would submit another job than the intended one. Inside an allocation it refuses to
// submit, because the job would not run there, but wait in the queue for another one.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"

namespace hpctl {

// `environment`: NAME=value, as in environ. Returns notes to print, a line each: the variables
// taken into `slurm`, and those that the job file overrides.
Result<std::vector<std::string>> take_slurm_environment(const std::vector<std::string>& environment,
                                                        SlurmSpec& slurm);

}  // namespace hpctl
