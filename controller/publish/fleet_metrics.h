// SPDX-License-Identifier: Apache-2.0
// Every job of a cluster controller, for its /metrics: one scrape target for all of them
// (docs/metrics.md). Names begin with hpctl_cluster_job_, so they count nothing twice if the jobs'
// own controllers are scraped as well. Made at every scrape from the newest summaries, so a series
// ends when its job is no longer among them; series of nodes end with the job.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "common/job/job_summary.h"
#include "common/job/node_record.h"
#include "common/watch/finding.h"
#include "controller/publish/metric_families.h"

namespace hpctl {

// Some twenty-five series each, and one for each node. Jobs beyond are counted in
// hpctl_cluster_jobs_without_metrics.
inline constexpr size_t kMaxFleetJobs = 1'000;
inline constexpr size_t kMaxFleetLemons = 1'000;
inline constexpr size_t kMaxFleetFindings = 5'000;
inline constexpr size_t kMaxFleetNodes = 20'000;  // series of nodes, of all jobs

// The values of the label `state`.
const std::vector<std::string>& job_states();

struct FleetJob {
  JobSummary summary;
  std::string user;  // name, or the uid as text
};

class FleetMetrics {
 public:
  // Any thread. Those jobs and no others from now on, the first ones where they are too many;
  // before the first call there are no series.
  void show(std::vector<FleetJob> jobs);

  // Any thread. Evidence against machines, highest first, at most kMaxFleetLemons.
  void show_lemons(std::vector<LemonScore> scores);

  // Any thread. Findings of the jobs, at most kMaxFleetFindings, critical ones first.
  void show_findings(std::vector<Finding> findings);

  // Any thread.
  void add_to(MetricFamilies& out) const;

 private:
  mutable std::mutex mutex_;
  bool shown_ = false;
  std::vector<FleetJob> jobs_;
  std::vector<LemonScore> lemons_;
  std::vector<Finding> findings_;
};

}  // namespace hpctl
