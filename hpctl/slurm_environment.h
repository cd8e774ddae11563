// SPDX-License-Identifier: Apache-2.0
// What this shell says of Slurm jobs. sbatch obeys SBATCH_* variables; `hpctl submit` takes those
// that have the meaning of a key which the job file leaves out, and refuses the others by name,
// rather than submit another job than the one that was meant. Inside an allocation nothing is
// submitted: the job would not run there, but wait in the queue behind it.
#pragma once

#include <string>
#include <vector>

#include "common/base/job_spec.h"
#include "common/base/result.h"

namespace hpctl {

// `environment`: NAME=value, as in environ. Returns what is to be said aloud, a line each: which
// variables were taken into `slurm`, and which count less than the job file.
Result<std::vector<std::string>> take_slurm_environment(const std::vector<std::string>& environment,
                                                        SlurmSpec& slurm);

}  // namespace hpctl
