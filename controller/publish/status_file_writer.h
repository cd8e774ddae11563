// SPDX-License-Identifier: Apache-2.0
// Keeps the status files (status_files.h) up to date from a thread of its own, because its files
// may be on slow or shared disks. Best effort: what cannot be written is said once per job in the
// log and dropped. Of a status only the newest waits; events wait in order, at most
// kStatusFileBacklog per job. What a controller has to say that was succeeded is dropped: its files
// are the successor's.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/job_spec.h"
#include "controller/publish/status_files.h"

namespace hpctl {

inline constexpr size_t kStatusFileBacklog = 50'000;

class StatusFileWriter {
 public:
  // `is_ours` is called on the writer's thread.
  StatusFileWriter(const HomePaths& paths, IsOurs is_ours);
  ~StatusFileWriter();  // as stop()
  StatusFileWriter(const StatusFileWriter&) = delete;
  StatusFileWriter& operator=(const StatusFileWriter&) = delete;

  // Any thread; none of these blocks on a disk.
  void status(JobView view);
  void events(JobId job, const std::string& checkpoint_dir, std::vector<EventView> events);
  void spec(JobId job, const JobSpec& spec);
  // Writes what waits, then ends.
  void stop();

 private:
  struct Pending {
    std::optional<JobView> status;
    std::optional<std::string> spec_json;
    std::string checkpoint_dir;
    std::vector<EventView> events;
  };

  void run();
  void write(JobId job, const Pending& pending);
  void complain(JobId job, const Outcome& outcome);

  const HomePaths paths_;
  const IsOurs is_ours_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<JobId, Pending> pending_;
  std::set<JobId> complained_;  // writer thread only
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hpctl
