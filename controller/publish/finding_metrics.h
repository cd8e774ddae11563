// SPDX-License-Identifier: Apache-2.0
// The findings of each job (common/watch/job_watch.h), for /metrics, so that alerts agree with the
// status page, `hpctl watch` and notifications. Made at every scrape from the newest look, so a
// series ends when the finding is over. JobWatch bounds them: one of a kind about the job, and
// kMostNodesTold of kinds about nodes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/watch/finding.h"
#include "controller/publish/metric_families.h"
#include "controller/publish/status_files.h"

namespace hpctl {

class FindingMetrics {
 public:
  // All that is found of the job now. Any thread.
  void show(const JobView& view, const std::vector<Finding>& found);

  // Any thread.
  void add_to(MetricFamilies& out) const;

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::vector<Finding>> jobs_;
};

// The labels of a finding, besides those of its job.
MetricLabels with_finding(MetricLabels job, const Finding& finding);

}  // namespace hpctl
