// SPDX-License-Identifier: Apache-2.0
// A submission with options of which only sbatch knows what they mean: times such as now+1hour,
// kinds of mail, options of SPANK plugins and of releases newer than this source
// (docs/decisions/0506).
#pragma once

#include "common/slurm/slurm_messages.h"
#include "slurm-plugins/hpslurm/answer.h"

namespace hpctl::slurm {

// As `submit` of jobs.h. sbatch does not outlive this process, which a caller kills at its
// deadline.
Answer submit_by_sbatch(const SlurmSubmission& submission);

}  // namespace hpctl::slurm
