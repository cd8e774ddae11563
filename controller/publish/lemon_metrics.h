// SPDX-License-Identifier: Apache-2.0
// Lemon scores of the nodes of live jobs (common/job/node_record.h), for /metrics. Made at every
// scrape from the newest snapshot of each job, so a series ends with the job, or when there is no
// evidence against the node any more.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/job/node_record.h"
#include "controller/publish/metric_families.h"
#include "controller/publish/status_files.h"

namespace hpctl {

class LemonMetrics {
 public:
  // The job as it is now. Any thread.
  void show(const JobView& view, const std::vector<LemonScore>& scores);

  // Any thread.
  void add_to(MetricFamilies& out) const;

 private:
  struct Shown {
    std::string name;
    std::map<std::string, double> nodes;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Shown> jobs_;
};

}  // namespace hpctl
