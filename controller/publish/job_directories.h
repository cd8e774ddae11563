// SPDX-License-Identifier: Apache-2.0
// The directories of the jobs that a controller serves. Each is made once: a local job's by the
// controller of its home, before the job's first file or process; a Slurm job's by `hpctl submit`.
// One that is missing later was deleted, or its file system is away. It is not made again: an empty
// directory would hide the loss, or would lie below the mount point. The job trains on, and its
// controller answers from its rows.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "common/base/result.h"
#include "common/job/ids.h"
#include "common/job/paths.h"

namespace hpctl {

// Any thread.
class JobDirectories {
 public:
  // For the log and the job's history, once when a directory is gone and once when it is back.
  // Called on the thread of check().
  using Tell = std::function<void(JobId, const std::string& what)>;

  // `makes`: this controller makes the directories of new jobs.
  JobDirectories(const HomePaths& paths, bool makes, Tell tell);
  JobDirectories(const JobDirectories&) = delete;
  JobDirectories& operator=(const JobDirectories&) = delete;

  // A former process of this controller has made it.
  void was_made(JobId job);
  // Before anything is written there; may block. Makes the directory of a new job. kNotFound: it is
  // gone, as a listing proves.
  Outcome check(JobId job);
  // Does not block. The directory's path if it was gone at the newest check(); "" = it was there.
  std::string lost(JobId job) const;

 private:
  const HomePaths paths_;
  const bool makes_;
  const Tell tell_;
  mutable std::mutex mutex_;
  std::set<JobId> made_;
  std::set<JobId> lost_;
};

}  // namespace hpctl
