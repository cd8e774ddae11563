// SPDX-License-Identifier: Apache-2.0
// Keeps the status files (status_files.h) up to date from separate threads, because they may be on
// slow or shared disks: a lane (engine/task_lanes.h) for each directory, so a hung one does not
// block the files of other jobs. Best effort: a failed write is reported once per job in the log
// and dropped. Only the newest status waits; events wait in order, at most kStatusFileBacklog per
// directory. Data of a controller with a successor are dropped: its files are the successor's.
// While a job's directory is gone (job_directories.h), its events wait until it is back.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "controller/engine/task_lanes.h"
#include "controller/publish/job_directories.h"
#include "controller/publish/status_files.h"

namespace hpctl {

inline constexpr size_t kStatusFileBacklog = 50'000;

class StatusFileWriter {
 public:
  // `is_ours` is called on the writer's threads. `directories` outlives the writer.
  StatusFileWriter(const HomePaths& paths, JobDirectories& directories, IsOurs is_ours);
  StatusFileWriter(const StatusFileWriter&) = delete;
  StatusFileWriter& operator=(const StatusFileWriter&) = delete;

  // Any thread; none of these blocks on a disk.
  void status(JobView view);
  void events(JobId job, const std::string& checkpoint_dir, std::vector<EventView> events);
  void spec(JobId job, const JobSpec& spec);
  // Writes what waits, then ends. The directories that hang (TaskLanes::stop).
  std::vector<std::string> stop();

 private:
  struct Pending {
    std::optional<JobView> status;
    std::optional<std::string> spec_json;
    std::vector<EventView> events;
  };
  struct PendingShared {
    JobId job;
    std::vector<EventView> events;
  };

  Pending& pending_of(JobId job);  // under mutex_
  void add_shared(JobId job, const std::string& directory, const std::vector<EventView>& events);
  void owe(JobId job, Pending pending);
  void write(JobId job);
  void write_shared(const std::string& directory);
  void complain(JobId job, const Outcome& outcome);

  const HomePaths paths_;
  JobDirectories& directories_;
  const IsOurs is_ours_;
  std::mutex mutex_;
  // Each has a task in its lane that takes it.
  std::map<JobId, Pending> pending_;             // for the job's directory
  std::map<JobId, Pending> owed_;                // while that directory is gone
  std::map<std::string, PendingShared> shared_;  // for a checkpoint directory
  std::set<JobId> complained_;
  TaskLanes lanes_;  // last: its threads use all the above
};

}  // namespace hpctl
