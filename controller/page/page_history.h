// SPDX-License-Identifier: Apache-2.0
// The data of the page's plots for a job that has no metrics.jsonl: one sample a second at first.
// At kMostSamples, every second one is dropped, and from then on they are taken half as often. So a
// job of any length has between kMostSamples / 2 and kMostSamples of them. In memory only: they
// begin with this controller, and those of a job that ended long ago are gone (recent_jobs.h). Not
// for more than one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/job/ids.h"
#include "controller/page/recent_jobs.h"

namespace hpctl {

struct PageSample {
  int64_t wall_ms = 0;
  uint64_t step = 0;
  double loss = 0;  // NaN = none
  double tokens_per_second = 0;
  double goodput = 0;  // 0..1; NaN before the first step
};

class PageHistory {
 public:
  static constexpr size_t kMostSamples = 600;
  static constexpr int64_t kFirstIntervalMs = 1'000;

  void add(JobId job, const PageSample& sample);
  void end(JobId job) { jobs_.end(job); }
  // Ascending in time.
  const std::vector<PageSample>& of(JobId job);

 private:
  struct Series {
    std::vector<PageSample> samples;
    int64_t interval_ms = kFirstIntervalMs;
  };
  RecentJobs<Series> jobs_;
};

}  // namespace hpctl
