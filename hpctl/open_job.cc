// SPDX-License-Identifier: Apache-2.0
#include "hpctl/open_job.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/base/file.h"
#include "common/base/host.h"
#include "common/job/directory_owner.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/cluster_conf.h"
#include "common/rpc/job_channel.h"
#include "hpctl/directory_answer.h"
#include "hpctl/job_lives.h"
#include "hpctl/silent_home.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

constexpr std::chrono::seconds kClusterTimeout{5};

// An id of Slurm's needs no list, for which Slurm would be asked about every job.
Result<FoundJob> find_job(const HomePaths& paths, const std::string& word) {
  if (directory_answers(paths.jobs())) {
    for (const JobId job : slurm_jobs(paths)) {
      if (to_string(job) == word) return FoundJob{job, ""};
    }
  }
  return find_job(*open_source(paths), word);
}

// A job of Slurm whose controller runs on this machine, which it knows as one of two names. The
// controller listens at a socket on a local disk, so nothing is read from the job's directory.
std::unique_ptr<ControllerClient> connect_here(const HomePaths& paths, JobId job) {
  const char* const of_slurm = std::getenv("SLURMD_NODENAME");
  for (const std::string& node : {std::string(of_slurm == nullptr ? "" : of_slurm), host_name()}) {
    if (node.empty()) continue;
    auto client = ControllerClient::connect(HomePaths::of_job(paths.job(job), job, node));
    if (client != nullptr) return client;
  }
  return nullptr;
}

// While the file system of the home does not answer. A local job is found without it.
std::optional<OpenJob> open_here(const HomePaths& paths, const std::string& word) {
  const auto id = id_in(word);
  auto client = id ? connect_here(paths, *id) : nullptr;
  if (client == nullptr) return std::nullopt;
  auto view = client->get_job(*id);
  if (!view.ok()) return std::nullopt;
  return OpenJob{paths, *id, std::make_unique<SilentHome>(paths, std::move(client)),
                 std::move(*view), ""};
}

Result<RemoteJob> open_at(const v1::ClusterJob& job) {
  const std::filesystem::path jobs = std::filesystem::path(job.job_dir()).parent_path();
  const HomePaths paths(jobs.parent_path().string());
  HP_TRY_ASSIGN(auto channel, connect_address(job.address(), job.certificate(), job.token()));
  auto client = std::make_unique<ControllerClient>(paths, std::move(channel));
  HP_TRY_ASSIGN(JobView view, client->get_job(JobId{job.job()}));
  return RemoteJob{paths, JobId{job.job()}, std::move(client), std::move(view)};
}

// Of the caller's own: address and token for his MUNGE credential.
std::optional<Result<RemoteJob>> open_own(const std::string& cluster, const std::string& word) {
  for (const v1::ClusterJobs& jobs : list_jobs_of_each(cluster, kClusterTimeout)) {
    for (const v1::ClusterJob& job : jobs.jobs()) {
      if (std::to_string(job.job()) != word || job.address().empty()) continue;
      auto opened = open_at(job);
      // Another head node may know the one that has succeeded it.
      if (opened.ok() || opened.error().code != ErrorCode::kUnavailable) return opened;
    }
  }
  return std::nullopt;
}

// Of anybody's, for who is appointed there.
std::optional<Result<RemoteJob>> open_appointed(const std::string& cluster, JobId id) {
  std::optional<Result<RemoteJob>> best;
  for (const auto& jobs : open_job_at_each(cluster, id, kClusterTimeout)) {
    if (!jobs.ok()) {
      // Who is not appointed, or asks an older service, sees no more than before.
      if (jobs.error().code == ErrorCode::kFailedPrecondition) best = jobs.error();
      continue;
    }
    if (jobs->jobs_size() > 1) {
      return Error{ErrorCode::kInvalidArgument,
                   "uid " + std::to_string(jobs->jobs(0).uid()) + " and uid " +
                       std::to_string(jobs->jobs(1).uid()) + " have a job " + to_string(id) +
                       " each there: ask one of them"};
    }
    auto opened = open_at(jobs->jobs(0));
    if (opened.ok()) return opened;
    best = opened.error();
  }
  return best;
}

}  // namespace

std::optional<JobId> id_in(const std::string& word) {
  const bool is_number = !word.empty() && word.size() <= 10 &&
                         word.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::optional(JobId{std::stoull(word)}) : std::nullopt;
}

Result<RemoteJob> open_elsewhere(const std::string& word, const Error& not_here) {
  const auto cluster = cluster_address();
  if (!cluster.ok() || cluster->empty()) return not_here;
  if (auto own = open_own(*cluster, word)) return std::move(*own);
  const auto id = id_in(word);
  if (!id) return not_here;
  if (auto other = open_appointed(*cluster, *id)) return std::move(*other);
  return not_here;
}

bool OpenJob::has_files() const { return directory_answers(paths.jobs()); }

std::string OpenJob::lost_directory() const {
  return has_files() ? lost_job_directory(paths, id, view.state) : "";
}

std::string OpenJob::saves_problem() const {
  const std::string& directory = view.checkpoint_dir;
  if (!view.margins || view.margins->failed_saves == 0 || directory.empty()) return "";
  if (!directory_answers(directory)) return describe_verdict(directory);
  const Outcome is_there = check_is_there(directory, "");
  const bool is_away = !is_there.ok() && is_there.error().code == ErrorCode::kStorage;
  return is_away ? is_there.error().message : "";
}

std::string OpenJob::notice() const {
  std::string text = source->notice(view);
  if (text.empty() && !has_files()) text = describe_verdict(paths.jobs());
  return text;
}

namespace {

// By a controller that is found without the job's directory, which is gone; nullopt if none is.
std::optional<OpenJob> open_without_directory(const HomePaths& paths, const FoundJob& found) {
  if (auto client = connect_here(paths, found.id)) {
    auto view = client->get_job(found.id);
    if (view.ok()) {
      return OpenJob{paths, found.id, std::move(client), std::move(*view), found.choice};
    }
  }
  auto job = open_elsewhere(to_string(found.id), Error{ErrorCode::kNotFound, ""});
  if (!job.ok()) return std::nullopt;
  return OpenJob{paths, found.id, std::move(job->client), std::move(job->view), found.choice};
}

}  // namespace

Result<OpenJob> open_job(const std::string& word) {
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  const auto found = find_job(paths, word);
  if (!found.ok()) {
    const bool is_silent = !directory_answers(paths.jobs());
    if (is_silent) {
      if (auto job = open_here(paths, word)) return std::move(*job);
    }
    if (found.error().code != ErrorCode::kNotFound && !is_silent) return found.error();
    const Error not_here =
        is_silent ? Error{ErrorCode::kUnavailable, describe_verdict(paths.jobs())} : found.error();
    HP_TRY_ASSIGN(RemoteJob job, open_elsewhere(word, not_here));
    return OpenJob{job.paths, job.id, std::move(job.client), std::move(job.view), ""};
  }
  const JobId id = found->id;
  if (directory_answers(paths.jobs()) && is_slurm_job(paths, id) &&
      !lost_job_directory(paths, id).empty()) {
    if (auto job = open_without_directory(paths, *found)) return std::move(*job);
  }
  auto source =
      until_it_ends(open_source(paths, id), [paths, id] { return open_record(paths, id); });
  HP_TRY_ASSIGN(JobView view, source->get_job(id));
  return OpenJob{paths, id, std::move(source), std::move(view), found->choice};
}

Result<OpenJob> open_job(const Invocation& invocation) {
  auto job = open_job(invocation.arguments[0]);
  if (job.ok() && !job->choice.empty()) invocation.terminal.err << "hpctl: " << job->choice << "\n";
  return job;
}

}  // namespace hpctl
