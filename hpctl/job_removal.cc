// SPDX-License-Identifier: Apache-2.0
#include "hpctl/job_removal.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string_view>

#include "common/base/file.h"
#include "hpctl/directory_answer.h"
#include "hpctl/home_access.h"
#include "hpctl/other_owner.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

constexpr const char* kCheckpoints = "checkpoints";
// Files by which hpctl finds the job.
constexpr std::array<std::string_view, 2> kRecord = {"job.json", "status.json"};
// What hpctl itself writes into a checkpoint directory, besides checkpoints.
constexpr std::array<std::string_view, 4> kOfLineage = {"generations", "owner.json",
                                                        "owner-next.json", "events.jsonl"};

Error refuse_removal(const std::string& message) {
  return Error{ErrorCode::kFailedPrecondition, message};
}

template <size_t N>
bool is_among(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string name_of(const OpenJob& job) { return "job " + to_string(job.id) + " " + job.view.name; }

Outcome check_can_be_removed(const OpenJob& job) {
  HP_TRY_ASSIGN(const HomePaths own, home_from_environment());
  if (job.paths.home() != own.home()) {
    return refuse_removal(name_of(job) +
                          " is of another home; remove it with HPCTL_HOME=" + job.paths.home());
  }
  if (!job.has_files()) {
    return Error{ErrorCode::kUnavailable, describe_verdict(job.paths.jobs())};
  }
  HP_TRY(check_home_is_ours(job.paths));
  if (has_ended(job.view.state)) return Ok{};
  const std::string doubt = job.notice();
  return refuse_removal(
      name_of(job) + " is " + job.view.state + (doubt.empty() ? "" : " (" + doubt + ")") +
      "; only a job that has ended can be removed; to end it: hpctl cancel " + to_string(job.id));
}

// Of a Slurm job `jobs/JOB` is a link to the directory.
std::string directory_of(const OpenJob& job) {
  if (!is_slurm_job(job.paths, job.id)) return job.paths.job(job.id);
  if (const std::string lost = lost_job_directory(job.paths, job.id); !lost.empty()) return lost;
  std::error_code error;
  const auto real = std::filesystem::canonical(job.paths.job(job.id), error);
  return error ? job.paths.job(job.id) : real.string();
}

// The directory of checkpoints in the job's own one, where they lie if no other was asked for.
Result<bool> has_checkpoints(const std::string& directory) {
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(directory));
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return !is_among(name, kOfLineage); });
}

Outcome remove_names(const std::string& directory, const std::set<std::string>& names) {
  for (const std::string& name : names) HP_TRY(remove_tree(directory + "/" + name));
  return Ok{};
}

// The link of a Slurm job goes before its record.
Outcome remove_files(const OpenJob& job, const std::string& directory, bool keeps_checkpoints) {
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(directory));
  std::set<std::string> bulk;
  std::set<std::string> record;
  for (const std::string& name : names) {
    if (keeps_checkpoints && name == kCheckpoints) continue;
    (is_among(name, kRecord) ? record : bulk).insert(name);
  }
  HP_TRY(remove_names(directory, bulk));
  const std::string link = job.paths.job(job.id);
  if (link != directory && ::unlink(link.c_str()) != 0 && errno != ENOENT) {
    return errno_error("cannot remove " + link);
  }
  HP_TRY(remove_names(directory, record));
  return keeps_checkpoints ? Outcome(Ok{}) : remove_tree(directory);
}

// The one that answers, or a new one: a local job's row is the controller's.
Outcome forget(const OpenJob& job) {
  if (is_slurm_job(job.paths, job.id)) return Ok{};
  HP_TRY_ASSIGN(const auto client, ControllerClient::ensure(job.paths));
  const Outcome forgotten = client->remove_job(job.id);
  const bool is_unknown = !forgotten.ok() && forgotten.error().code == ErrorCode::kNotFound;
  return is_unknown ? Outcome(Ok{}) : forgotten;
}

}  // namespace

Result<OpenJob> open_removable(const std::string& word) {
  auto job = open_job(word);
  if (job.ok() || job.error().code != ErrorCode::kNotFound) return job;
  const auto id = id_in(word);
  if (!id) return job;
  HP_TRY_ASSIGN(const HomePaths paths, home_from_environment());
  auto view = read_status(paths, *id);
  if (!view.ok()) return job;
  return OpenJob{paths, *id, open_record(paths, *id), std::move(*view), ""};
}

Result<Removal> remove_job(const OpenJob& job, CheckpointsOf checkpoints) {
  HP_TRY(check_can_be_removed(job));
  const std::string directory = directory_of(job);
  const std::string own = directory + "/" + kCheckpoints;
  HP_TRY_ASSIGN(const bool are_there, has_checkpoints(own));
  HP_TRY_ASSIGN(const std::string other, find_other_owner(job.view, own));
  const bool removes = checkpoints == CheckpointsOf::kRemoved;
  if (removes && !other.empty()) {
    return refuse_removal(name_of(job) + ": its checkpoints in " + own + " belong to " + other +
                          " by now; leave --checkpoints out");
  }
  const bool keeps = !other.empty() || (are_there && !removes);
  HP_TRY(forget(job));
  HP_TRY(remove_files(job, directory, keeps));
  if (keeps) return Removal{own};
  const std::string& used = job.view.checkpoint_dir;
  const bool is_own = used.empty() || used == own || used == job.paths.default_checkpoints(job.id);
  return Removal{is_own || !is_accessible(used) ? "" : used};
}

}  // namespace hpctl
