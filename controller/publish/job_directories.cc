// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/job_directories.h"

#include <cerrno>
#include <utility>

#include "common/base/file.h"

namespace hpctl {

JobDirectories::JobDirectories(const HomePaths& paths, bool makes, Tell tell)
    : paths_(paths), makes_(makes), tell_(std::move(tell)) {}

void JobDirectories::was_made(JobId job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  made_.insert(job);
}

Outcome JobDirectories::check(JobId job) {
  const std::string path = paths_.job(job);
  bool is_new = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_new = makes_ && !made_.contains(job);
  }
  if (is_new) {
    HP_TRY(make_directories(path));
    was_made(job);
    return Ok{};
  }
  HP_TRY_ASSIGN(const bool exists, entry_exists(path));
  bool is_news = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_news = exists ? lost_.erase(job) > 0 : lost_.insert(job).second;
  }
  const std::string gone = "the job's directory " + path + " is gone";
  if (is_news) {
    tell_(job, exists ? "the job's directory " + path + " is there again"
                      : gone +
                            ": it was deleted, or its file system is away; its records and "
                            "logs are not written");
  }
  if (exists) return Ok{};
  return Error{ErrorCode::kNotFound, gone, ENOENT};
}

std::string JobDirectories::lost(JobId job) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lost_.contains(job) ? paths_.job(job) : "";
}

}  // namespace hpctl
