// SPDX-License-Identifier: Apache-2.0
// The directory of a Slurm job and its two names:
//
//   HPCTL_HOME/jobs/submit-KEY   0700; made before the job is submitted, so that whatever starts on
//                                whichever node finds it
//   HPCTL_HOME/jobs/JOB          a link to it, made by `hpctl submit` and by the batch script,
//                                whoever comes first
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/job/paths.h"
#include "controller/publish/status_files.h"

namespace hpctl {

struct SubmitDirectory {
  std::string path;
  std::string key;

  std::string name() const { return "submit-" + key; }
};

// Where create_submit_directory() will make it.
SubmitDirectory submit_directory(const HomePaths& paths, const std::string& key);
// With job.json and token. All or nothing: what was made before an error is removed.
// `cluster` is Slurm's ClusterName.
Result<SubmitDirectory> create_submit_directory(const HomePaths& paths, const std::string& key,
                                                const std::string& cluster, const JobSpec& spec);

// Idempotent. Slurm reuses an id when slurmctld lost its newest state or has counted to MaxJobId;
// then the earlier job of this cluster is history, and jobs/JOB is the new one's. kAlreadyExists if
// the id belongs to another job of this home, which happens when local jobs and Slurm jobs, or the
// jobs of two clusters, share one HPCTL_HOME.
Outcome link_job(const HomePaths& paths, JobId job, const SubmitDirectory& directory);

// Returns whether the id is a Slurm job's here, submitted or running.
bool is_slurm_job(const HomePaths& paths, JobId job);
// Ids of the Slurm jobs of this home, ascending.
std::vector<JobId> slurm_jobs(const HomePaths& paths);

// The path of the job's directory, of a Slurm job the one that its link names, if a listing of the
// home's jobs lacks it; "" if it is there, or if the home is not visible here. Precondition:
// directory_answers(paths.jobs()).
std::string lost_job_directory(const HomePaths& paths, JobId job);
// The same of a job in this state: a local job that is PENDING may have none yet.
std::string lost_job_directory(const HomePaths& paths, JobId job, const std::string& state);

// Why the batch script did not start the job, from HPCTL_HOME/jobs/JOB/refusal: its exit status, 2
// where the job cannot run as it was described, and the reason for people.
struct Refusal {
  int status = 0;  // 0 = it was not refused
  std::string reason;
};
Refusal read_refusal(const HomePaths& paths, JobId job);

// The job as it was submitted: of any job of this home, also while it is in the queue.
Result<JobSpec> submitted_spec(const HomePaths& paths, JobId job);

// The view of a Slurm job without any controller: name, owner, time of submission; no state.
Result<JobView> submitted_view(const HomePaths& paths, JobId job);
// The same of a job whose directory is gone: what the link jobs/JOB tells. No name, no state.
JobView linked_view(const HomePaths& paths, JobId job);

}  // namespace hpctl
