// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/finding_metrics.h"

#include <utility>

namespace hpctl {

MetricLabels with_finding(MetricLabels job, const Finding& finding) {
  job.add("kind", to_word(finding.kind));
  job.add("severity", to_word(finding.severity));
  job.add("node", finding.node);
  return job;
}

void FindingMetrics::show(const JobView& view, const std::vector<Finding>& found) {
  std::vector<Finding> shown = found;
  const std::lock_guard lock(mutex_);
  std::swap(jobs_[view.job], shown);  // what was shown goes after the lock
}

void FindingMetrics::add_to(MetricFamilies& out) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, found] : jobs_) {
    for (const Finding& finding : found) {
      out.gauge("hpctl_job_finding", "1 for each finding that stands, as hpctl watch tells it",
                with_finding({{"job", std::to_string(id)}, {"name", finding.name}}, finding), 1);
    }
  }
}

}  // namespace hpctl
