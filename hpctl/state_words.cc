// SPDX-License-Identifier: Apache-2.0
#include "hpctl/state_words.h"

#include <algorithm>
#include <vector>

#include "common/watch/job_watch.h"
#include "hpctl/job_source.h"
#include "hpctl/job_table.h"
#include "hpctl/terminal.h"

namespace hpctl {
namespace {

// The gravest thing that `hpctl watch` would tell; "" = nothing.
std::string find_trouble(const JobView& job, WallTime now, const std::string& lost_directory) {
  JobSnapshot snapshot = snapshot_of(job, now);
  snapshot.lost_directory = lost_directory;
  const std::vector<Finding> found = JobWatch(false).look(snapshot, now);
  const auto gravest =
      std::max_element(found.begin(), found.end(),
                       [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return gravest == found.end() ? "" : gravest->what;
}

std::string running(const JobView& job, WallTime now, const std::string& lost_directory) {
  const bool has_steps = job.total_steps > 0 || job.step > 0;
  const std::string verb = has_steps ? "training" : "running";
  const std::string trouble = find_trouble(job, now, lost_directory);
  return trouble.empty() ? verb + " normally" : verb + ", but " + trouble;
}

std::string recovering(const JobView& job) {
  if (job.total_steps == 0) return "recovering from a fault";
  return "recovering from a fault at step " + std::to_string(job.step) + "; " +
         (job.checkpoint_step > 0
              ? "the newest checkpoint is of step " + std::to_string(job.checkpoint_step)
              : "there is no checkpoint yet");
}

std::string ended(const JobView& job) {
  const std::string at =
      job.total_steps > 0 || job.step > 0
          ? " at step " + std::to_string(job.step) +
                (job.total_steps > 0 ? " of " + std::to_string(job.total_steps) : std::string())
          : "";
  if (job.state == "FINISHED") return "finished" + at;
  if (job.state == "CANCELLED") return "cancelled" + at;
  if (job.state == "TIMEOUT") return "ended by its time limit" + at;
  return "failed" + at;
}

// No controller answers.
std::string not_known(const std::string& lost_directory) {
  return lost_directory.empty() ? "not known: no controller answers, and this is the last record"
                                : "not known: its directory is gone, and only Slurm tells of it";
}

std::string first_words(const JobView& job, WallTime now, const std::string& lost_directory) {
  if (has_ended(job.state)) return ended(job);
  if (job.state == "RUNNING") return running(job, now, lost_directory);
  if (job.state == "RECOVERING") return recovering(job);
  if (job.state == "PENDING") return "waiting to start";
  if (job.state == "STARTING") return "starting on its nodes";
  if (job.state == "STOPPING") return "ending its workers";
  if (job.state == "SUSPENDED") return "suspended: the scheduler has stopped its processes";
  return "in a state that is not known";
}

}  // namespace

std::string state_in_words(const JobView& job, const std::optional<Validation>& validation,
                           bool is_live, WallTime now, const std::string& lost_directory) {
  // These two are what Slurm itself says. A suspended job's controller is stopped with it.
  const bool is_slurms_word = job.state == "PENDING" || job.state == "SUSPENDED";
  const bool is_old = !is_live && !has_ended(job.state) && !is_slurms_word;
  std::string words = is_old ? not_known(lost_directory) : first_words(job, now, lost_directory);
  if (validation) {
    words += ", validation loss " + format_loss(validation->loss) + " at step " +
             std::to_string(validation->step);
  }
  if (is_old) return words;
  if (const auto eta = eta_ms(summarize(job, now))) words += ", ETA " + short_duration(*eta);
  return words;
}

}  // namespace hpctl
