// SPDX-License-Identifier: Apache-2.0
#include "hpctl/recorded_jobs.h"

#include <algorithm>

#include "common/base/clock.h"
#include "common/net/unix_address.h"
#include "controller/core/explain.h"
#include "hpctl/directory_answer.h"
#include "hpctl/home_access.h"
#include "hpctl/submit_directory.h"

namespace hpctl {

Result<std::vector<JobSummary>> RecordedJobs::list_jobs() {
  HP_TRY(check_directory_answers(paths_.jobs()));
  HP_TRY(check_home_is_readable(paths_));
  HP_TRY_ASSIGN(const std::vector<JobId> ids, jobs_with_status_files(paths_));
  std::vector<JobSummary> jobs;
  for (const JobId id : ids) {
    if (is_slurm_job(paths_, id)) continue;
    const auto view = read_status(paths_, id);
    // One damaged record must not hide the other jobs.
    jobs.push_back(view.ok() ? summarize(*view, SystemClock().wall()) : unknown_job(id, "?"));
  }
  return jobs;
}

Result<JobView> RecordedJobs::get_job(JobId job) {
  HP_TRY(check_directory_answers(paths_.jobs()));
  return read_status(paths_, job);
}

Result<std::vector<EventView>> RecordedJobs::events(JobId job, uint64_t after_seq) {
  HP_TRY(check_directory_answers(paths_.jobs()));
  HP_TRY_ASSIGN(std::vector<EventView> events, read_events(paths_.job_events(job)));
  std::erase_if(events, [&](const EventView& event) { return event.seq <= after_seq; });
  return events;
}

std::string RecordedJobs::notice(const JobView& job) const {
  if (has_ended(job.state)) return "";
  if (unix_listener_trouble(paths_.controller_socket()) == 0) {
    return "the controller of " + paths_.home() +
           " runs and has not answered in time: its machine is busy, or it is stopped (its log: " +
           paths_.controller_log() + "); this is its last record";
  }
  return "no controller runs for " + paths_.home() +
         "; this is its last record (an agent of a running job starts it again; where none is "
         "left, hpctl wait JOB does)";
}

Result<Explanation> RecordedJobs::why(JobId job) {
  HP_TRY(check_directory_answers(paths_.jobs()));
  HP_TRY_ASSIGN(const std::vector<EventView> events, read_events(paths_.job_events(job)));
  return explain(events, job);
}

Explanation explain(const std::vector<EventView>& events, JobId job) {
  std::vector<core::LogEntry> log;
  for (const EventView& e : events) {
    log.push_back({Seq{e.seq}, e.type, JobId{e.job}, Generation{e.generation}, e.node, e.rank,
                   e.cause, Seq{e.because}});
  }
  const std::vector<core::LogEntry> chain = core::explain(log, job);
  Explanation explanation{core::summarize(chain), {}};
  for (const core::LogEntry& entry : chain) {
    const auto event = std::find_if(events.begin(), events.end(), [&](const EventView& e) {
      return e.seq == entry.seq.value && e.type == entry.type && e.cause == entry.cause;
    });
    if (event != events.end()) explanation.chain.push_back(*event);
  }
  return explanation;
}

}  // namespace hpctl
