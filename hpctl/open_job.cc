// SPDX-License-Identifier: Apache-2.0
#include "hpctl/open_job.h"

#include <filesystem>
#include <utility>

#include "common/rpc/cluster_client.h"
#include "common/rpc/job_channel.h"
#include "hpctl/controller_client.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kClusterTimeout{5};

// An id of Slurm's needs no list, for which Slurm would be asked about every job.
Result<JobId> find_job(const HomePaths& paths, const std::string& word) {
  for (const JobId job : slurm_jobs(paths)) {
    if (to_string(job) == word) return job;
  }
  return find_job(*open_source(paths), word);
}

Result<OpenJob> open_at(const v1::ClusterJob& job) {
  const std::filesystem::path jobs = std::filesystem::path(job.job_dir()).parent_path();
  const HomePaths paths(jobs.parent_path().string());
  HP_TRY_ASSIGN(auto channel, connect_address(job.address(), job.certificate(), job.token()));
  auto source = std::make_unique<ControllerClient>(paths, std::move(channel));
  HP_TRY_ASSIGN(JobView view, source->get_job(JobId{job.job()}));
  return OpenJob{paths, JobId{job.job()}, std::move(source), std::move(view)};
}

// A job of another home of ours, which need not be visible here: its controller's address and token
// come from a cluster controller, for our MUNGE credential. `not_here` where none knows more.
Result<OpenJob> open_elsewhere(const std::string& word, const Error& not_here) {
  const auto cluster = cluster_address();
  if (!cluster.ok() || cluster->empty()) return not_here;
  for (const v1::ClusterJobs& jobs : list_jobs_of_each(*cluster, kClusterTimeout)) {
    for (const v1::ClusterJob& job : jobs.jobs()) {
      if (std::to_string(job.job()) != word || job.address().empty()) continue;
      auto opened = open_at(job);
      // Another head node may know the one that has succeeded it.
      if (opened.ok() || opened.error().code != ErrorCode::kUnavailable) return opened;
    }
  }
  return not_here;
}

}  // namespace

Result<OpenJob> open_job(const std::string& word) {
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  const auto found = find_job(paths, word);
  if (!found.ok()) {
    const bool unknown = found.error().code == ErrorCode::kNotFound;
    return unknown ? open_elsewhere(word, found.error()) : Result<OpenJob>(found.error());
  }
  const JobId id = *found;
  auto source = open_source(paths, id);
  auto view = source->get_job(id);
  if (!view.ok() && view.error().code == ErrorCode::kUnavailable && source->is_live()) {
    source = open_record(paths, id);  // the controller has ended since it was found
    view = source->get_job(id);
  }
  if (!view.ok()) return view.error();
  return OpenJob{paths, id, std::move(source), std::move(*view)};
}

}  // namespace hpctl
