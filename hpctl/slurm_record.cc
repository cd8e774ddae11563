// SPDX-License-Identifier: Apache-2.0
#include "hpctl/slurm_record.h"

#include "common/base/clock.h"
#include "common/job/start_failure.h"
#include "hpctl/directory_answer.h"
#include "hpctl/queue_remedy.h"
#include "hpctl/recorded_jobs.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

// Slurm's base states of a job that it has ended.
std::string state_at_end(const SlurmJob& job) {
  if (job.state == "COMPLETED") return "FINISHED";
  if (job.state == "CANCELLED" || job.state == "TIMEOUT") return job.state;
  return "FAILED";
}

std::string why_pending(const SlurmJob& job) {
  std::string text = job.restart_count > 0 ? "requeued by Slurm; " : "";
  text += "waits in Slurm's queue";
  if (!job.reason.empty() && job.reason != "None") text += ": " + job.reason;
  if (!job.reason_detail.empty()) text += " (" + job.reason_detail + ")";
  return text;
}

std::string why_ended(const SlurmJob& job) {
  std::string text = "Slurm ended the job: " + job.state;
  if (!job.reason.empty() && job.reason != "None") text += ", " + job.reason;
  if (job.exit_signal != 0) {
    text += ", signal " + std::to_string(job.exit_signal);
  } else if (job.exit_code != 0) {
    text += ", exit status " + std::to_string(job.exit_code);
  }
  // Slurm's sign that the batch script's output file could not be opened on its node.
  if (job.reason == "JobLaunchFailure" && job.exit_signal == 53) {
    text +=
        ": its node cannot write to the job's directory; HPCTL_HOME must be on a file system "
        "that all nodes see";
  }
  return text;
}

// Nothing of the job is alive: what a controller saw of nodes and workers is over.
void forget_processes(JobView& view) {
  view.nodes.clear();
  view.workers.clear();
  view.tokens_per_second = 0;
  view.mfu = 0;
  view.controller_pid = 0;
  view.controller_node.clear();
}

// While the controller is silent, somebody else is about to look what lives.
void doubt(JobView& view) {
  if (view.state != "RUNNING") return;
  view.state = "RECOVERING";
  const std::string& node = view.controller_node;
  view.reason = (node.empty() ? "its controller" : "the controller on " + node) +
                " does not answer; the agents of the job start another, which finds out what runs";
  view.tokens_per_second = 0;
  view.mfu = 0;
}

}  // namespace

JobView with_slurm_state(JobView view, const SlurmJob& job) {
  if (job.state == "PENDING") {
    view.state = "PENDING";
    view.reason = why_pending(job);
    view.queue_remedy = queue_remedy(job);
    forget_processes(view);
  } else if (job.has_ended()) {
    forget_processes(view);
    view.state = state_at_end(job);
    if (view.state != "FINISHED") view.reason = why_ended(job);
    view.ended_at = WallTime(job.end_time_s * 1000);
  } else if (job.state == "SUSPENDED") {
    view.state = "SUSPENDED";
    view.reason = "suspended in Slurm; scontrol resume " + to_string(job.id) + " lets it go on";
    view.tokens_per_second = 0;
    view.mfu = 0;
  } else if (view.state == "PENDING") {
    view.state = "STARTING";
    view.reason = "Slurm has started the job on " + job.batch_host;
  }
  return view;
}

// What kept the job from a controller, where that is the newest there is to say.
std::string SlurmRecord::start_failure(const JobView& view) const {
  const bool matters = view.state != "PENDING" && view.state != "FINISHED";
  return matters ? read_start_failure(paths_.job(JobId{view.job})) : "";
}

Result<JobView> SlurmRecord::known_without_directory(JobId job, const std::string& lost,
                                                     const Result<SlurmJob>& slurm) const {
  const std::string gone = "its directory " + lost + " is gone";
  const std::string id = to_string(job);
  JobView view = linked_view(paths_, job);
  view.name = "?";
  if (!slurm.ok()) {
    if (slurm.error().code != ErrorCode::kNotFound) {
      return Error{slurm.error().code, gone + ", and " + slurm.error().message};
    }
    view.state = "FAILED";
    view.reason = "Slurm does not know the job any more, and " + gone +
                  ": how it ended is not known; `hpctl rm " + id + "` forgets it";
    return view;
  }
  view.name = slurm->name;
  view.state = "RUNNING";  // unless Slurm says otherwise
  view = with_slurm_state(std::move(view), *slurm);
  if (has_ended(view.state)) {
    view.reason += (view.reason.empty() ? "" : "; ") + gone;
  } else if (view.state == "PENDING") {
    view.reason +=
        "; " + gone + ", so it cannot start: `hpctl cancel " + id + "`, and submit it again";
  } else {
    if (view.reason.empty()) view.reason = "Slurm runs it on " + slurm->batch_host;
    view.reason += "; " + gone +
                   ", so its controller is not found from here: bring the directory " +
                   "back, or `hpctl cancel " + id + "` and submit it again";
  }
  return view;
}

Result<JobView> SlurmRecord::last_known(JobId job) {
  HP_TRY(check_directory_answers(paths_.jobs()));
  auto recorded = read_status(paths_, job);
  if (recorded.ok() && has_ended(recorded->state)) return recorded;
  const auto slurm = slurm_.job(job);
  // Its end is recorded before Slurm knows of it, and may have been while Slurm was asked.
  if (!slurm.ok() || slurm->has_ended()) recorded = read_status(paths_, job);
  if (recorded.ok() && has_ended(recorded->state)) return recorded;
  auto known = recorded.ok() ? recorded : submitted_view(paths_, job);
  if (!known.ok()) {
    const std::string lost = lost_job_directory(paths_, job);
    return lost.empty() ? std::move(known) : known_without_directory(job, lost, slurm);
  }
  JobView view = std::move(*known);
  if (!recorded.ok()) view.state = "PENDING";
  if (slurm.ok()) {
    view = with_slurm_state(std::move(view), *slurm);
    const Refusal refusal = read_refusal(paths_, job);
    if (view.state == "FAILED" && refusal.status != 0) view.reason = refusal.reason;
    const std::string failure = start_failure(view);
    if (!failure.empty()) view.reason = failure;
    return view;
  }
  if (slurm.error().code == ErrorCode::kNotFound) {
    view.reason = "Slurm does not know the job any more; " +
                  (recorded.ok() ? "its last recorded state was " + view.state
                                 : std::string("its controller never started"));
    view.state = "FAILED";
    return view;
  }
  // No controller of the job has written a record, so it was in the queue when last heard of.
  if (!recorded.ok()) {
    view.reason = "it was submitted; Slurm does not answer, so whether it has started is not known";
  }
  return view;
}

Result<JobView> SlurmRecord::get_job(JobId job) {
  HP_TRY_ASSIGN(JobView view, last_known(job));
  // Without its directory no agent can start another controller.
  if (lost_job_directory(paths_, job).empty()) doubt(view);
  return view;
}

std::string SlurmRecord::notice(const JobView& job) const {
  const std::string silent = slurm_.silence();
  if (!silent.empty()) return "Slurm does not answer, this is the last record: " + silent;
  const std::string lost = lost_job_directory(paths_, JobId{job.job});
  if (!lost.empty()) return "its directory " + lost + " is gone; this is what Slurm says of it";
  if (has_ended(job.state) || job.state == "PENDING" || job.state == "STARTING") return "";
  return why_ + "; this is the job's last record (an agent of the job starts another controller)";
}

Result<std::vector<JobSummary>> SlurmRecord::list_jobs() {
  HP_TRY(check_directory_answers(paths_.jobs()));
  std::vector<JobSummary> jobs;
  for (const JobId id : slurm_jobs(paths_)) {
    const auto view = last_known(id);  // its controller was not asked
    if (view.ok()) {
      jobs.push_back(summarize(*view, SystemClock().wall()));
      continue;
    }
    // Neither Slurm's silence nor one damaged record hides the others.
    const auto submitted = submitted_view(paths_, id);
    jobs.push_back(unknown_job(id, submitted.ok() ? submitted->name : "?"));
  }
  return jobs;
}

Result<std::vector<EventView>> SlurmRecord::events(JobId job, uint64_t after_seq) {
  HP_TRY(check_directory_answers(paths_.jobs()));
  if (!lost_job_directory(paths_, job).empty()) return std::vector<EventView>();
  return RecordedJobs(paths_).events(job, after_seq);
}

Result<Explanation> SlurmRecord::why(JobId job) {
  HP_TRY(check_directory_answers(paths_.jobs()));
  if (!lost_job_directory(paths_, job).empty()) {
    HP_TRY_ASSIGN(const JobView known, get_job(job));
    return Explanation{known.state + ": " + known.reason, {}};
  }
  HP_TRY_ASSIGN(Explanation why, RecordedJobs(paths_).why(job));
  const auto view = get_job(job);
  if (!view.ok()) return why;
  const auto recorded = read_status(paths_, job);
  const bool is_news = !start_failure(*view).empty();
  if (!is_news && recorded.ok() && recorded->state == view->state) return why;
  // The last word of the history is not the present.
  why.summary = view->state + ": " + view->reason +
                (is_news || why.chain.empty() ? "" : "; before that: " + why.summary);
  return why;
}

}  // namespace hpctl
