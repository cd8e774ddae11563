// SPDX-License-Identifier: Apache-2.0
// The trainer's measurements, for /metrics (docs/metrics.md). Made at every scrape from the newest
// snapshot of each job, so a series ends with its rank, node or job.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "controller/agents/progress.h"
#include "controller/core/types.h"
#include "controller/publish/metric_families.h"
#include "controller/publish/status_files.h"

namespace hpctl {

class TrainMetrics {
 public:
  // The job as it is now. Any thread.
  void show(const JobView& view, JobProgress progress, const core::BadStepRecord& bad_step);

  // Any thread.
  void add_to(MetricFamilies& out) const;

 private:
  struct Shown {  // of the view no nodes and workers, of which there may be many
    std::string name;
    std::string state;
    uint64_t step = 0;
    double loss = 0;
    double tokens_per_second = 0;
    JobProgress progress;
    core::BadStepRecord bad_step;
    std::vector<StragglerView> stragglers;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Shown> jobs_;
};

}  // namespace hpctl
