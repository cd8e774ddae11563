// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/fleet_metrics.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <utility>

namespace hpctl {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using Labels = std::vector<ClientMetric::Label>;

class FleetFamily {
 public:
  FleetFamily(const char* name, const char* help)
      : family_{name, help, prometheus::MetricType::Gauge, {}} {}

  void add(Labels labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    family_.metric.push_back(std::move(metric));
  }
  void add(Labels labels, const char* label, const std::string& is, double value) {
    labels.push_back({label, is});
    add(std::move(labels), value);
  }
  MetricFamily take() { return std::move(family_); }

 private:
  MetricFamily family_;
};

}  // namespace

const std::vector<std::string>& job_states() {
  static const std::vector<std::string> names = {"PENDING",    "STARTING",  "RUNNING",
                                                 "RECOVERING", "STOPPING",  "FINISHED",
                                                 "FAILED",     "CANCELLED", "TIMEOUT"};
  return names;
}

void FleetMetrics::show(std::vector<FleetJob> jobs) {
  const std::lock_guard lock(mutex_);
  jobs_ = std::move(jobs);
  shown_ = true;
}

std::vector<MetricFamily> FleetMetrics::Collect() const {
  const std::lock_guard lock(mutex_);
  if (!shown_) return {};
  FleetFamily state("hpctl_cluster_job_state", "1 for the job's present state");
  FleetFamily step("hpctl_cluster_job_step", "Last completed step");
  FleetFamily steps("hpctl_cluster_job_total_steps", "Steps that it is to make");
  FleetFamily tokens("hpctl_cluster_job_tokens_per_second", "Of the whole job, while it trains");
  FleetFamily nodes("hpctl_cluster_job_nodes", "Nodes that it has, spares with them");
  FleetFamily ranks("hpctl_cluster_job_ranks", "Its ranks");
  FleetFamily restarts("hpctl_cluster_job_restarts", "Recoveries begun");
  FleetFamily goodput("hpctl_cluster_job_goodput_ratio",
                      "Share of training in the time since the first step");
  FleetFamily time("hpctl_cluster_job_time_seconds", "Where the time since the submission went");
  FleetFamily without("hpctl_cluster_jobs_without_metrics", "Jobs beyond those that have series");
  for (size_t i = 0; i < std::min(jobs_.size(), kMaxFleetJobs); ++i) {
    const JobSummary& job = jobs_[i].summary;
    const Labels labels = {
        {"job", to_string(job.job)}, {"name", job.name}, {"user", jobs_[i].user}};
    for (const std::string& name : job_states()) {
      state.add(labels, "state", name, name == job.state ? 1 : 0);
    }
    if (!job.is_told()) continue;
    step.add(labels, static_cast<double>(job.step));
    if (job.total_steps > 0) steps.add(labels, static_cast<double>(job.total_steps));
    if (job.tokens_per_second > 0) tokens.add(labels, job.tokens_per_second);
    nodes.add(labels, static_cast<double>(job.nodes.size()));
    ranks.add(labels, job.ranks);
    restarts.add(labels, static_cast<double>(job.restarts));
    const TimeAccount account = account_of(job);
    for (const TimePart& part : parts_of(account)) {
      time.add(labels, "part", part.name, static_cast<double>(part.ms) / 1000);
    }
    if (const auto share = goodput_of(account)) goodput.add(labels, *share);
  }
  without.add({}, static_cast<double>(jobs_.size() - std::min(jobs_.size(), kMaxFleetJobs)));
  std::vector<MetricFamily> families;
  for (FleetFamily* family :
       {&state, &step, &steps, &tokens, &nodes, &ranks, &restarts, &goodput, &time, &without}) {
    families.push_back(family->take());
  }
  return families;
}

}  // namespace hpctl
