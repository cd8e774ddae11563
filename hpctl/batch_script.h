// SPDX-License-Identifier: Apache-2.0
// The batch script of a Slurm job, and its request to Slurm. Pure text: `hpctl submit --dry-run`
// prints exactly what would be submitted.
//
// The script runs on the first node. It starts the job's controller, or requests it from the
// cluster controller (controller/leadership/batch_proxy.h), and, with one srun, an agent on every
// node. It ends with the controller's verdict: 0 finished, 1 failed, 93 failed and not to be
// requeued. A controller that crashes is restarted; if one yields to a successor on another node,
// the script waits for the job.
#pragma once

#include <string>

#include "common/job/job_spec.h"
#include "common/slurm/slurm_messages.h"
#include "hpctl/submit_directory.h"

namespace hpctl {

struct BatchSettings {
  std::string home;      // HPCTL_HOME, absolute
  std::string programs;  // directory of hpctl and its siblings, the same on all nodes
  SubmitDirectory directory;
  std::string cluster;  // of which one is to run the job's controller (cluster_client.h); "" = none
  std::string cluster_ca;  // by whose certificates these are known (cluster_conf.h); "" = none here
  bool expedite = false;   // SlurmSubmission
};

// Everything but the environment, which the caller adds.
SlurmSubmission slurm_submission(const JobSpec& spec, const BatchSettings& settings);

}  // namespace hpctl
