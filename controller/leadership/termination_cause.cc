// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/termination_cause.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/slurm/hpslurm.h"

namespace hpctl {
namespace {

constexpr int64_t kQuestionMs = 3'000;  // of the 30 s that Slurm leaves by default
// Slurm may warn a minute earlier than requested, and the signal takes some time.
constexpr int64_t kEarlyMs = 90'000;
constexpr size_t kMaxNumberBytes = 32;

std::string preemption_path(const std::string& job_dir) { return job_dir + "/preempted"; }

}  // namespace

TerminationCause termination_cause(const SlurmJob& job, const SlurmSpec& spec, int64_t wall_ms) {
  if (job.is_requeued()) return TerminationCause::kRequeued;
  if (job.state == "TIMEOUT") return TerminationCause::kTimeLimit;
  if (job.preempt_time_s != 0) return TerminationCause::kPreempted;
  const bool goes_on = job.state == "RUNNING" && !job.has_flag("COMPLETING");
  const bool is_near = job.end_time_s != 0 &&
                       job.end_time_s * 1000 - wall_ms <= spec.warning_seconds * 1000 + kEarlyMs;
  return goes_on && is_near ? TerminationCause::kTimeLimit : TerminationCause::kSomebody;
}

TerminationCause ask_termination_cause(JobId job, const SlurmSpec& spec) {
  SlurmClientOptions options;
  options.call_deadline_ms = kQuestionMs;
  const auto known = SlurmClient(options).job(job);
  return known.ok() ? termination_cause(*known, spec, SystemClock().wall_ms())
                    : TerminationCause::kSomebody;
}

Outcome note_preemption(const std::string& job_dir, uint64_t restart_count) {
  return write_file_atomic(preemption_path(job_dir), std::to_string(restart_count) + "\n");
}

Outcome note_cancellation(const std::string& job_dir, uint64_t restart_count) {
  return write_file_atomic(job_dir + "/cancelled", std::to_string(restart_count) + "\n");
}

Result<bool> is_preempted(const std::string& job_dir, uint64_t restart_count) {
  HP_TRY_ASSIGN(const auto noted, read_file_if_there(preemption_path(job_dir), kMaxNumberBytes));
  return noted && *noted == std::to_string(restart_count) + "\n";
}

std::string last_words(TerminationCause why, const JobSpec& spec, const std::string& own_dir) {
  if (why == TerminationCause::kPreempted) {
    return "Slurm preempted the job; if Slurm requeues it, it goes on from what it saved";
  }
  if (why == TerminationCause::kTimeLimit && spec.slurm.requeue_at_limit) {
    return "the time limit of the Slurm job has come (slurm.requeue_at_limit)";
  }
  std::string text = why == TerminationCause::kTimeLimit
                         ? "the time limit of the Slurm job has come; "
                         : "a user or Slurm ended the Slurm job (scancel, preemption); ";
  if (!spec.train) return text + "submit it again to go on from what the program saved";
  if (!spec.checkpoint.dir.empty() && spec.checkpoint.dir != own_dir) {
    return text + "submit it again to go on from checkpoint.dir";
  }
  return text + "to go on, submit it again with checkpoint.dir: " + own_dir +
         " (where the file names none, every job has its own directory)";
}

}  // namespace hpctl
