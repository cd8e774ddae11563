// SPDX-License-Identifier: Apache-2.0
// Whether the owner of a checkpoint directory lives (common/base/directory_owner.h). No clock and
// no heartbeat decide that: it is asked where it is known.
//
//   a local job      the rows of its home: what a controller there goes on with, now or when it is
//                    started again
//   a Slurm job      its verdict, where that is final, else slurmctld
//   other jobs with a controller of their own    the verdict in the job's directory
//   the job of a record of an older release, which tells number and name    the rows of this home,
//                    or the Slurm job of that number in this home
//
// May block on files and on Slurm. Any thread.
#pragma once

#include <string>

#include "common/base/directory_owner.h"
#include "common/base/ids.h"
#include "common/base/paths.h"

namespace hpctl {

// How this job is known in its checkpoint directory.
struct LocalJob {
  std::string uuid;
  std::string name;
  uint32_t uid = 0;
};
JobIdentity identify_local_job(const HomePaths& home, const LocalJob& job);
// `cluster`: "" = not a Slurm job.
JobIdentity identify_job(const std::string& job_dir, JobId id, const LocalJob& job,
                         const std::string& cluster);
// Slurm's ClusterName, from the job's directory; "" = none is known there.
std::string cluster_of(const std::string& job_dir);

// `home`: HPCTL_HOME of who asks.
OwnerAnswer ask_owner(const JobIdentity& owner, const std::string& checkpoint_dir,
                      const HomePaths& home);

}  // namespace hpctl
