// SPDX-License-Identifier: Apache-2.0
// `hpctl submit` where Slurm schedules: the job's directory, the batch script, one submission.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/result.h"
#include "common/job/directory_owner.h"
#include "common/job/job_spec.h"
#include "common/job/paths.h"
#include "common/slurm/slurm_messages.h"

namespace hpctl {

// `cluster`: of which one is to run the job's controller (common/rpc/cluster_client.h); "" = none
// (hpctl/cluster_placement.h).

// The submission for --dry-run, with a placeholder for the random key.
Result<SlurmSubmission> describe_submission(const JobSpec& spec, const HomePaths& paths,
                                            const std::string& cluster);

// How long to retry while Slurm does not answer, and a callback that is called once when that
// begins.
struct SubmitPatience {
  int64_t ms = 0;
  std::function<void(const std::string&)> say;
};

// kUnavailable when no Slurm answers: nothing was submitted, or Slurm may have taken the job and
// its directory waits for it (the error says which). On every other error nothing is left behind.
Result<JobId> submit_to_slurm(const JobSpec& spec, const HomePaths& paths,
                              const std::string& cluster, const SubmitPatience& patience,
                              LivingOwner living_owner);

}  // namespace hpctl
