// SPDX-License-Identifier: Apache-2.0
// How long the own part of a step took on each rank over time, for the heatmap of the status page:
// one column per second at first. At kMostColumns, neighbours become one with the longer time of
// each rank, and from then on columns are added half as often. Of a job with more than kMostRows
// ranks a row is several ranks, with the longest time of them. In memory only: the columns begin
// with this controller, and those of a job that ended long ago are gone (recent_jobs.h). Not for
// more than one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/job/ids.h"
#include "controller/page/recent_jobs.h"

namespace hpctl {

class RankTimes {
 public:
  static constexpr size_t kMostColumns = 120;
  static constexpr size_t kMostRows = 256;
  static constexpr int64_t kFirstIntervalMs = 1'000;

  struct Column {
    int64_t wall_ms = 0;
    uint64_t step = 0;
    size_t ranks_per_row = 1;
    std::vector<float> ms;  // of each row; 0 = not known
  };

  // `ms`: of each rank, in the order of ranks; 0 = not known.
  void add(JobId job, int64_t wall_ms, uint64_t step, const std::vector<float>& ms);
  void end(JobId job) { jobs_.end(job); }
  // Ascending in time.
  const std::vector<Column>& of(JobId job);

 private:
  struct Heat {
    std::vector<Column> columns;
    int64_t interval_ms = kFirstIntervalMs;
  };
  RecentJobs<Heat> jobs_;
};

}  // namespace hpctl
