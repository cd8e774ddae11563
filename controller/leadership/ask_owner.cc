// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/ask_owner.h"

#include <sys/stat.h>

#include <algorithm>

#include "common/base/file.h"
#include "common/base/host.h"
#include "common/job/job_files.h"
#include "common/process/user_name.h"
#include "common/slurm/hpslurm.h"
#include "controller/engine/store.h"
#include "controller/leadership/local_submission.h"

namespace hpctl {
namespace {

constexpr size_t kMaxClusterBytes = 4096;
constexpr int64_t kSlurmMs = 10'000;

OwnerAnswer ended(const std::string& words) { return {OwnerLife::kEnded, words}; }
OwnerAnswer alive(const std::string& words) { return {OwnerLife::kAlive, words}; }
OwnerAnswer cannot_ask(const std::string& words) { return {OwnerLife::kCannotBeAsked, words}; }

OwnerAnswer answer_of(const core::Job& job) {
  const std::string words = "job " + to_string(job.id) + " there is " + core::to_string(job.state);
  return core::has_ended(job.state) ? ended(words) : alive(words);
}

bool is_same_directory(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// The rows of a home. They say which jobs a controller there goes on with, also while none runs.
Result<core::State> read_rows(const HomePaths& home) {
  HP_TRY_ASSIGN(const auto store, Store::open(home.database(), Store::Mode::kReader));
  return store->load();
}

OwnerAnswer ask_home(const JobIdentity& owner) {
  const HomePaths home(owner.home);
  const auto there = path_exists(home.home());
  if (!there.ok()) return cannot_ask(there.error().message);
  if (!*there) return cannot_ask("its home " + owner.home + " is not on this machine");
  // A home with this path on another machine need not be that one.
  const bool is_here = owner.machine == host_name();
  const OwnerAnswer unknown =
      is_here ? ended("its home knows no such job")
              : cannot_ask("its home is on " + owner.machine + ", and this is " + host_name());
  // Before the rows: at the end of its submission they know the job.
  if (is_here) {
    const auto is_submitted = is_being_submitted(home, owner.uuid);
    if (!is_submitted.ok()) return cannot_ask(is_submitted.error().message);
    if (*is_submitted) return alive("it is being submitted");
  }
  const auto has_rows = entry_exists(home.database());
  if (!has_rows.ok()) return cannot_ask(has_rows.error().message);
  if (!*has_rows) return unknown;
  const auto rows = read_rows(home);
  if (!rows.ok()) return cannot_ask(rows.error().message);
  for (const auto& [id, job] : rows->jobs) {
    if (job.submit_key == owner.uuid) return answer_of(job);
  }
  return unknown;
}

// Slurm gives numbers again. Sites may overwrite comments, and then the directory tells.
bool is_that_job(const SlurmJob& job, const JobIdentity& owner) {
  if (job.comment.starts_with("submit-" + owner.uuid) || job.work_dir == owner.job_dir) return true;
  return job.comment.empty() && job.work_dir.empty();
}

OwnerAnswer ask_slurm(const JobIdentity& owner) {
  SlurmClientOptions options;
  options.call_deadline_ms = kSlurmMs;
  SlurmClient slurm(options);
  const auto version = slurm.version();
  if (!version.ok()) return cannot_ask(version.error().message);
  if (version->cluster != owner.cluster) {
    return cannot_ask("it belongs to cluster " + owner.cluster + ", and this is " +
                      version->cluster);
  }
  const auto job = slurm.job(JobId{owner.job});
  if (!job.ok()) {
    if (job.error().code != ErrorCode::kNotFound) return cannot_ask(job.error().message);
    return ended("slurmctld has forgotten it");
  }
  if (!is_that_job(*job, owner)) {
    return ended("slurmctld has given its number to another job");
  }
  return job->has_ended() ? ended("it is " + job->state) : alive("it is " + job->state);
}

// A final verdict ends a job whatever Slurm does; after another one it may be requeued.
OwnerAnswer ask_job_directory(const JobIdentity& owner) {
  constexpr uint64_t kNoLife = UINT64_MAX;
  const auto verdict = standing_verdict(owner.job_dir, owner.cluster.empty() ? 0 : kNoLife);
  if (verdict.ok() && *verdict) return ended("it has ended with " + std::to_string(**verdict));
  if (!owner.cluster.empty()) return ask_slurm(owner);
  if (!verdict.ok()) return cannot_ask(verdict.error().message);
  return alive("it has no verdict in " + owner.job_dir);
}

// A record of an older release has only number and name.
OwnerAnswer ask_by_number(const JobIdentity& owner, const std::string& checkpoint_dir,
                          const HomePaths& home) {
  const std::string job_dir = home.job(JobId{owner.job});
  const auto document = read_job_document(job_dir);
  if (document.ok() && !cluster_of(job_dir).empty() && document->spec.name == owner.name) {
    JobIdentity job = owner;
    job.uuid = document->submit_key;
    job.job_dir = job_dir;
    job.cluster = cluster_of(job_dir);
    return ask_job_directory(job);
  }
  const auto has_rows = entry_exists(home.database());
  if (!has_rows.ok()) return cannot_ask(has_rows.error().message);
  const auto rows = *has_rows ? read_rows(home) : Result<core::State>(core::State());
  if (!rows.ok()) return cannot_ask(rows.error().message);
  const auto job = rows->jobs.find(JobId{owner.job});
  if (job != rows->jobs.end() && job->second.spec.name == owner.name &&
      is_same_directory(job->second.spec.checkpoint.dir, checkpoint_dir)) {
    return answer_of(job->second);
  }
  return cannot_ask("an older release recorded it without its home, and " + home.home() +
                    " does not know it");
}

}  // namespace

JobIdentity identify_local_job(const HomePaths& home, const LocalJob& job) {
  JobIdentity identity;
  identity.uuid = job.uuid;
  identity.name = job.name;
  identity.user = user_name(std::to_string(job.uid));
  identity.home = home.home();
  identity.machine = host_name();
  return identity;
}

JobIdentity identify_job(const std::string& job_dir, JobId id, const LocalJob& job,
                         const std::string& cluster) {
  JobIdentity identity;
  identity.uuid = job.uuid;
  identity.job = id.value;
  identity.name = job.name;
  identity.user = user_name(std::to_string(job.uid));
  identity.job_dir = job_dir;
  identity.cluster = cluster;
  return identity;
}

std::string cluster_of(const std::string& job_dir) {
  auto text = read_file(job_dir + "/cluster", kMaxClusterBytes);
  if (!text.ok()) return "";
  while (text->ends_with("\n")) text->pop_back();
  return *text;
}

OwnerAnswer ask_owner(const JobIdentity& owner, const std::string& checkpoint_dir,
                      const HomePaths& home) {
  if (is_command(owner)) return ended("a command, and no job");
  if (!owner.home.empty()) return ask_home(owner);
  if (!owner.job_dir.empty()) return ask_job_directory(owner);
  return ask_by_number(owner, checkpoint_dir, home);
}

}  // namespace hpctl
