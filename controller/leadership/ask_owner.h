// SPDX-License-Identifier: Apache-2.0
// Whether the owner of a checkpoint directory is alive (common/job/directory_owner.h). No clock
// and no heartbeat decide that; the source that knows is asked.
//
//   a local job                       the database of its home, whether or not a controller runs;
//                                     before that knows it, the lock of its submission
//   a Slurm job                       its final verdict, if it has one; otherwise slurmctld
//   another job with its controller   the verdict in the job's directory
//   a job of an older release         its record has number and name only: this home's database, or
//                                     the Slurm job of that number in this home
//
// May block on files and on Slurm. Any thread.
#pragma once

#include <string>

#include "common/job/directory_owner.h"
#include "common/job/ids.h"
#include "common/job/paths.h"

namespace hpctl {

// This job's identity in its checkpoint directory.
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
