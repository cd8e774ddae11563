// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/told_to_end.h"

#include "common/base/clock.h"
#include "common/rpc/hpslurm.h"

namespace hpctl {
namespace {

constexpr int64_t kQuestionMs = 3'000;  // of the 30 s that Slurm leaves by default
// Slurm may warn a minute earlier than requested, and the signal takes some time.
constexpr int64_t kEarlyMs = 90'000;

}  // namespace

ToldToEnd why_told_to_end(const SlurmJob& job, const SlurmSpec& spec, int64_t wall_ms) {
  if (job.is_requeued()) return ToldToEnd::kRequeued;
  if (job.state == "TIMEOUT") return ToldToEnd::kTimeLimit;
  const bool goes_on = job.state == "RUNNING" && !job.has_flag("COMPLETING");
  const bool is_near = job.end_time_s != 0 &&
                       job.end_time_s * 1000 - wall_ms <= spec.warning_seconds * 1000 + kEarlyMs;
  return goes_on && is_near ? ToldToEnd::kTimeLimit : ToldToEnd::kSomebody;
}

ToldToEnd ask_why_told_to_end(JobId job, const SlurmSpec& spec) {
  SlurmClientOptions options;
  options.call_deadline_ms = kQuestionMs;
  const auto known = SlurmClient(options).job(job);
  return known.ok() ? why_told_to_end(*known, spec, SystemClock().wall_ms()) : ToldToEnd::kSomebody;
}

std::string last_words(ToldToEnd why, const JobSpec& spec, const std::string& own_dir) {
  std::string text = why == ToldToEnd::kTimeLimit
                         ? "the time limit of the Slurm job has come; "
                         : "somebody ended the Slurm job (scancel, preemption); ";
  if (!spec.train) return text + "submit it again to go on from what the program saved";
  if (!spec.checkpoint.dir.empty() && spec.checkpoint.dir != own_dir) {
    return text + "submit it again to go on from checkpoint.dir";
  }
  return text + "to go on, submit it again with checkpoint.dir: " + own_dir +
         " (where the file names none, every job has a directory of its own)";
}

}  // namespace hpctl
