// SPDX-License-Identifier: Apache-2.0
// The checks of `hpctl submit` on checkpoint.dir: its owner, and whether a job that starts from
// scratch may use it. The default directory is the job's own and needs no check.
#pragma once

#include "common/base/result.h"
#include "common/job/directory_owner.h"
#include "common/job/job_spec.h"
#include "common/job/paths.h"

namespace hpctl {

// A job that does not go on from the directory's newest checkpoint makes all that are there useless
// to later jobs: only with --fresh.
Outcome check_anew(const CheckpointSpec& checkpoint, bool fresh);

// kInvalidArgument: checkpoint.mirror.dir is checkpoint.dir by another name, or lies in it, or
// holds it. The mirror is claimed by the job's controller alone: a job trains without its mirror.
Outcome check_mirror(const JobSpec& spec);

// claim_directory() and check_claim() of the directory that the job file gives.
Result<DirectoryClaim> claim_given_directory(const JobSpec& spec, const HomePaths& paths,
                                             const JobIdentity& self, LivingOwner living);
Outcome check_given_directory(const JobSpec& spec, const HomePaths& paths);

}  // namespace hpctl
