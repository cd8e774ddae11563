// SPDX-License-Identifier: Apache-2.0
#include "hpctl/submit_to_slurm.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/random_hex.h"
#include "common/rpc/cluster_conf.h"
#include "common/slurm/hpslurm.h"
#include "controller/leadership/ask_owner.h"
#include "hpctl/batch_script.h"
#include "hpctl/directory_use.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

// What this shell has, as sbatch passes it on; not what a job around us was told about itself.
std::vector<std::string> job_environment(const HomePaths& paths) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const bool of_slurm = variable.starts_with("SLURM_") && !variable.starts_with("SLURM_CONF=");
    if (!of_slurm && !variable.starts_with("HPCTL_HOME=")) variables.push_back(variable);
  }
  variables.push_back("HPCTL_HOME=" + paths.home());
  return variables;
}

Result<SlurmSubmission> make_submission(const JobSpec& spec, const HomePaths& paths,
                                        const SubmitDirectory& directory,
                                        const std::string& cluster, bool expedite) {
  HP_TRY_ASSIGN(const std::string programs, program_directory());
  std::string ca;
  if (!cluster.empty()) {
    HP_TRY_ASSIGN(ca, cluster_ca());
  }
  SlurmSubmission submission =
      slurm_submission(spec, {paths.home(), programs, directory, cluster, ca, expedite});
  submission.environment = job_environment(paths);
  return submission;
}

constexpr int64_t kPingMs = 3'000;  // libslurm itself would try for 10 s and more
constexpr int64_t kPauseMs = 1'000;

std::string time_of_day(int64_t wall_ms) {
  const auto seconds = static_cast<time_t>(wall_ms / 1000);
  std::tm local{};
  std::array<char, 64> text{};
  ::localtime_r(&seconds, &local);
  std::strftime(text.data(), text.size(), "%F %T %Z", &local);
  return text.data();
}

// Before anything is made for the job: slurmctld answers, or has not for as long as we may wait.
Outcome await_slurm(const SubmitPatience& patience) {
  SlurmClientOptions options;
  options.call_deadline_ms = kPingMs;
  SlurmClient slurm(options);
  const SystemClock clock;
  const int64_t until_ms = clock.monotonic_ms() + patience.ms;
  for (bool said = false;; said = true) {
    const Outcome answer = slurm.ping();
    if (!answer.ok() && answer.error().code == ErrorCode::kInternal) {
      return Error{ErrorCode::kUnavailable,
                   "no Slurm on this machine; add --local to run the job here (" +
                       answer.error().message + ")"};
    }
    if (answer.ok() || answer.error().code != ErrorCode::kUnavailable) return answer;
    const int64_t left_ms = until_ms - clock.monotonic_ms();
    if (left_ms <= 0) {
      return Error{ErrorCode::kUnavailable,
                   "gave up after " + std::to_string(patience.ms / 1000) +
                       " s, nothing was submitted: " + answer.error().message};
    }
    if (!said) {
      patience.say(answer.error().message + "; trying again until " +
                   time_of_day(clock.wall_ms() + left_ms) + " (nothing is submitted yet)");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(left_ms, kPauseMs)));
  }
}

// Slurm would let such a job wait for ever.
Outcome check_size(SlurmClient& slurm, const JobSpec& spec) {
  HP_TRY_ASSIGN(const std::vector<SlurmNode> nodes, slurm.nodes({}));
  if (nodes.size() >= static_cast<size_t>(spec.all_nodes())) return Ok{};
  return Error{ErrorCode::kFailedPrecondition,
               "the job asks for " + std::to_string(spec.all_nodes()) +
                   " nodes (nodes.count and nodes.spares); the cluster has " +
                   std::to_string(nodes.size())};
}

// " (slurm: partition p5, gres gpu:8)": what Slurm's own words leave out.
std::string asked_for(const SlurmSpec& slurm) {
  std::string text;
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) text += (text.empty() ? "" : ", ") + std::string(key) + " " + value;
  };
  add("partition", slurm.partition);
  add("account", slurm.account);
  add("qos", slurm.qos);
  add("gres", slurm.gres);
  add("constraint", slurm.constraint);
  add("reservation", slurm.reservation);
  add("nodelist", slurm.nodelist);
  add("exclude", slurm.exclude);
  for (const std::string& option : sbatch_options(slurm))
    text += (text.empty() ? "" : ", ") + option;
  if (slurm.mem_mb > 0) add("mem", std::to_string(slurm.mem_mb) + "M");
  return text.empty() ? "" : " (slurm: " + text + ")";
}

// The link could not be made: Slurm's id is taken here. The job has not done anything yet.
Error taken_id(SlurmClient& slurm, JobId job, const HomePaths& paths, const Error& error) {
  const Outcome cancelled = slurm.cancel(job);
  const std::string id = to_string(job);
  if (error.code != ErrorCode::kAlreadyExists) {
    return {error.code, "Slurm accepted the job as " + id + ", but " + error.message +
                            (cancelled.ok() ? "; it was cancelled" : "; scancel " + id)};
  }
  return {error.code, "Slurm gave the job the id " + id + ", which another job in " + paths.home() +
                          " has already (" +
                          (cancelled.ok() ? "it was cancelled" : "end it with scancel " + id) +
                          "); use one HPCTL_HOME per cluster, and another for local jobs"};
}

// At submit, unless the job is to wait for others: then the one that it continues may live still,
// and the job's controller claims the directory when the job starts.
bool claims_at_submit(const JobSpec& spec, LivingOwner living) {
  return spec.slurm.dependency.empty() || living == LivingOwner::kTake;
}

Outcome claim_for_slurm_job(const JobSpec& spec, const HomePaths& paths,
                            const SubmitDirectory& directory, JobId job, const std::string& cluster,
                            LivingOwner living) {
  if (!claims_at_submit(spec, living)) return Ok{};
  const JobIdentity self = identify_job(
      directory.path, job, {directory.key, spec.name, static_cast<uint32_t>(::geteuid())}, cluster);
  HP_TRY(claim_given_directory(spec, paths, self, living));
  return Ok{};
}

// Before anything is submitted.
Outcome check_owner(const JobSpec& spec, const HomePaths& paths, LivingOwner living) {
  if (living == LivingOwner::kTake || !claims_at_submit(spec, living)) return Ok{};
  return check_given_directory(spec, paths);
}

}  // namespace

Result<SlurmSubmission> describe_submission(const JobSpec& spec, const HomePaths& paths,
                                            const std::string& cluster) {
  SlurmClientOptions options;
  options.call_deadline_ms = kPingMs;
  SlurmClient slurm(options);
  const auto version = slurm.version();  // an error: there is no Slurm here, and none is needed
  return make_submission(spec, paths, submit_directory(paths, "KEY"), cluster,
                         version.ok() && version->expedites);
}

Result<JobId> submit_to_slurm(const JobSpec& spec, const HomePaths& paths,
                              const std::string& cluster, const SubmitPatience& patience,
                              LivingOwner living_owner) {
  HP_TRY(await_slurm(patience));
  HP_TRY(check_owner(spec, paths, living_owner));
  SlurmClient slurm;
  HP_TRY(check_size(slurm, spec));
  HP_TRY_ASSIGN(const SlurmVersion version, slurm.version());
  HP_TRY_ASSIGN(const std::string key, random_key());
  HP_TRY_ASSIGN(const SubmitDirectory directory,
                create_submit_directory(paths, key, version.cluster, spec));
  auto submission = make_submission(spec, paths, directory, cluster, version.expedites);
  Outcome ready = submission.ok()
                      ? write_file_atomic(directory.path + "/batch.sh", submission->script)
                      : Outcome(submission.error());
  Result<JobId> job = ready.ok() ? slurm.submit(*submission) : Result<JobId>(ready.error());
  if (!job.ok()) {
    const Error& error = job.error();
    if (error.code != ErrorCode::kUnavailable) {
      (void)remove_tree(directory.path);
      const bool refused = error.code == ErrorCode::kInvalidArgument;
      return Error{error.code, error.message + (refused ? asked_for(spec.slurm) : "")};
    }
    // Slurm may have the job although its answer was lost; then it starts, and is found by its id.
    return Error{error.code, error.message + " (kept for it: " + directory.path + ")"};
  }
  if (const Outcome linked = link_job(paths, *job, directory); !linked.ok()) {
    const Error error = taken_id(slurm, *job, paths, linked.error());
    (void)remove_tree(directory.path);
    return error;
  }
  if (const Outcome claimed =
          claim_for_slurm_job(spec, paths, directory, *job, version.cluster, living_owner);
      !claimed.ok()) {
    const Outcome cancelled = slurm.cancel(*job);
    const std::string id = to_string(*job);
    return Error{
        claimed.error().code,
        claimed.error().message + " (Slurm job " + id +
            (cancelled.ok() ? " was cancelled)" : " is left; end it with scancel " + id + ")")};
  }
  return *job;
}

}  // namespace hpctl
