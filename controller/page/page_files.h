// SPDX-License-Identifier: Apache-2.0
// What the status page shows of a job's files: series of metrics.jsonl, the last lines of a rank's
// log, and the checkpoints in its directory. The files may be on a file server that does not
// answer. So separate threads read them, a lane per job, and a caller waits at most kPatience; it
// is refused at once if kMostWaiting requests of the job wait already. All answers are bounded.
//
// Any thread. Errors: kUnavailable, kNotFound, kInvalidArgument, and those of the file system.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/job/ids.h"
#include "common/job/paths.h"
#include "controller/engine/task_lanes.h"
#include "controller/page/metrics_file.h"

namespace hpctl {

class PageFiles {
 public:
  static constexpr std::chrono::milliseconds kPatience{4'000};
  static constexpr size_t kMostWaiting = 3;     // requests of a job
  static constexpr size_t kMostPoints = 1'000;  // of a series
  // Of the series that stay in memory. A long job has 8 MB, a short one little.
  static constexpr size_t kMostSeries = 64;
  static constexpr size_t kMostSeriesBytes = size_t{64} << 20;
  static constexpr size_t kMostLogLines = 500;  // of a tail
  static constexpr size_t kMostLogBytes = 256U << 10;
  static constexpr size_t kMostCheckpoints = 200;  // the newest

  struct Span {
    uint64_t from = 0;
    uint64_t to = UINT64_MAX;  // steps, both ends with it
    size_t points = 500;
  };

  // `series_bytes`: of the series that stay in memory. The last used one always does.
  explicit PageFiles(HomePaths paths, size_t series_bytes = kMostSeriesBytes)
      : paths_(std::move(paths)), series_bytes_(series_bytes) {}

  // JSON: docs/status-page.md.
  Result<std::string> series(JobId job, const Span& span);
  // A rank without a log has no lines.
  Result<std::string> log_tail(JobId job, Rank rank, size_t lines);
  Result<std::string> checkpoints(JobId job, const std::string& directory);
  // Jobs whose series are in memory, the last used first.
  std::vector<JobId> jobs_in_memory();

  // Waits at most that long for what reads. The lanes that still hang then.
  std::vector<std::string> stop(std::chrono::milliseconds patience);

 private:
  using Read = std::function<Result<std::string>()>;
  struct Series {
    JobId job;
    std::shared_ptr<MetricsFile> file;
    size_t bytes = 0;  // when it was last read
  };

  // Runs `read` in the lane of the job.
  Result<std::string> in_lane(JobId job, Read read);
  std::shared_ptr<MetricsFile> file_of(JobId job);
  // In the job's lane, after a read. The series used longest ago make room.
  void note_size(JobId job, size_t bytes);

  const HomePaths paths_;
  const size_t series_bytes_;
  std::mutex mutex_;
  std::map<JobId, size_t> waiting_;
  std::list<Series> series_;  // the last used first
  TaskLanes lanes_{4, kMostWaiting};
};

}  // namespace hpctl
