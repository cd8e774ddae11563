// SPDX-License-Identifier: Apache-2.0
// The metrics of a job beyond plain numbers, for /metrics (docs/metrics.md): its nodes with their
// standbys, its end, and restarts, which count on under another controller. Made at every scrape
// from the newest snapshot of each job, so a series ends with its node or job.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "controller/publish/metric_families.h"
#include "controller/publish/status_files.h"

namespace hpctl {

class JobMetrics {
 public:
  // The job as it is now. Any thread.
  void show(const JobView& view);

  // Any thread.
  void add_to(MetricFamilies& out) const;

 private:
  struct Shown {
    std::string name;
    std::string state;
    int64_t restarts = 0;
    WallTime ended_at;            // unknown = not ended
    std::vector<NodeView> nodes;  // of a job that has not ended
    StorageView storage;
    int64_t storage_away_ms = 0;  // how long the present wait lasts; 0 = there is none
    MirrorView mirror;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Shown> jobs_;
};

}  // namespace hpctl
