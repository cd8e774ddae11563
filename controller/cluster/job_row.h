// SPDX-License-Identifier: Apache-2.0
// The cluster controller's stored data about a job: STATE/jobs/UID-JOB.json, replaced as a whole,
// durable before the job's controller gets its order to begin (docs/formats.md). It lies on a local
// disk in a directory of the service alone, for it holds the job's token.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl::cluster {

// Two users may say the same number; what each may do with it is Slurm's to judge.
struct JobKey {
  uid_t uid = 0;
  uint64_t job = 0;
  auto operator<=>(const JobKey&) const = default;
};
std::string to_text(const JobKey& key);  // "job 12 of uid 1000"

struct JobRow {
  JobKey key;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string job_dir;
  std::vector<std::string> nodes;
  uint64_t restart_count = 0;
  std::string programs;
  std::string scheduler;
  std::string token;
  std::string address;        // of the controller; "" = it has not said yet
  std::string certificate;    // by which it is known there
  uint16_t metrics_port = 0;  // of its metrics on this machine; 0 = none
  bool takes_roles = false;   // the controller (ChildReport)
  bool older_agents = false;  // may come (ChildOrder)
  // The process that was started last: a pid means something only with these.
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat
  std::string boot_id;
  uint32_t restarts = 0;
};

// Not for several threads at once.
class JobRows {
 public:
  // Makes `directory`; kPermissionDenied when others may enter it.
  static Result<JobRows> open(const std::string& directory);

  Outcome write(const JobRow& row) const;
  Outcome remove(const JobKey& key) const;
  // A row that cannot be read is an error that names it.
  Result<std::vector<JobRow>> load() const;

 private:
  explicit JobRows(std::string directory) : directory_(std::move(directory)) {}
  std::string path_of(const JobKey& key) const;

  std::string directory_;
};

}  // namespace hpctl::cluster
