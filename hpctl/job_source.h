// SPDX-License-Identifier: Apache-2.0
// Answers about jobs. They come from the controller while one runs, and from the files that it left
// under HPCTL_HOME otherwise; a verb that only reads need not know which. Nothing here starts a
// controller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/ids.h"
#include "common/job/job_summary.h"
#include "common/job/paths.h"
#include "controller/publish/status_files.h"

namespace hpctl {

// Why a job is in its state: the events and decisions that led there, oldest first.
struct Explanation {
  std::string summary;
  std::vector<EventView> chain;
};

class ControllerClient;

class JobSource {
 public:
  virtual ~JobSource() = default;
  // Ascending by id. One of which nothing is known any more is there with the state UNKNOWN.
  virtual Result<std::vector<JobSummary>> list_jobs() = 0;
  virtual Result<JobView> get_job(JobId job) = 0;
  // Ascending by seq, those after `after_seq`.
  virtual Result<std::vector<EventView>> events(JobId job, uint64_t after_seq) = 0;
  virtual Result<Explanation> why(JobId job) = 0;
  // False when the answers are what a controller last wrote.
  virtual bool is_live() const = 0;
  // The controller that answers, for what only it can do; nullptr where none does. Lives as long as
  // this.
  virtual ControllerClient* controller() { return nullptr; }
  // For people: says what a record of a job that has not ended is worth. "" when there is nothing
  // to say.
  virtual std::string notice(const JobView&) const { return ""; }
};

// Of a home whose file system does not answer, these give what its local controller says
// (silent_home.h).
//
// All jobs of a home. Local ones: the controller's answers if it answers a ping within a second,
// else the recorded ones. Slurm's: each has its own controller, see open_job.h.
std::unique_ptr<JobSource> open_source(const HomePaths& paths);

// The current source for one job: its controller if that answers within a second, else the records.
// Call it again after a failed answer: controllers come and go.
std::unique_ptr<JobSource> open_source(const HomePaths& paths, JobId job);
// The records of one job, whether its controller answers or not.
std::unique_ptr<JobSource> open_record(const HomePaths& paths, JobId job);

struct FoundJob {
  JobId id;
  std::string choice;  // for people: why this one of several with the name; "" = it is the only one
};
// The job meant by an id or a name. Of several jobs with the name it is the one that lives, or else
// the newest; if several live, only an id will do. An error names what is near.
Result<FoundJob> find_job(JobSource& source, const std::string& word);

bool has_ended(const std::string& state);

// For a job with an unreadable record.
JobSummary unknown_job(JobId job, const std::string& name);

}  // namespace hpctl
