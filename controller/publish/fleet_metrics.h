// SPDX-License-Identifier: Apache-2.0
// Every job of a cluster controller, for its /metrics: one scrape target for all of them
// (docs/metrics.md). Names begin with hpctl_cluster_job_, so that they count nothing twice where
// the jobs' own controllers are scraped as well. Made anew at every scrape from the newest
// summaries, so that a series ends with its job.
#pragma once

#include <prometheus/collectable.h>

#include <mutex>
#include <string>
#include <vector>

#include "common/base/job_summary.h"

namespace hpctl {

// Some twenty-five series each. Jobs beyond are counted in hpctl_cluster_jobs_without_metrics.
inline constexpr size_t kMaxFleetJobs = 1'000;

// The values of the label `state`.
const std::vector<std::string>& job_states();

struct FleetJob {
  JobSummary summary;
  std::string user;  // name, or the uid as text
};

class FleetMetrics final : public prometheus::Collectable {
 public:
  // Any thread. Those jobs and no others from now on; before the first call there are no series.
  void show(std::vector<FleetJob> jobs);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  mutable std::mutex mutex_;
  bool shown_ = false;
  std::vector<FleetJob> jobs_;
};

}  // namespace hpctl
