// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/fleet_metrics.h"

#include <algorithm>
#include <utility>

#include "controller/publish/finding_metrics.h"

namespace hpctl {
namespace {

constexpr auto kStateHelp = "1 for the job's present state, or its last";
constexpr auto kTimeHelp = "Where the time since the submission went";

void add_state(MetricFamilies& out, const MetricLabels& labels, const JobSummary& job) {
  for (const std::string& name : job_states()) {
    out.gauge("hpctl_cluster_job_state", kStateHelp, with(labels, "state", name),
              name == job.state ? 1 : 0);
  }
  if (!job.ended_at.is_known()) return;
  out.gauge("hpctl_cluster_job_ended_timestamp_seconds", "When it ended, and how",
            with(labels, "state", job.state), static_cast<double>(job.ended_at.unix_ms()) / 1000);
}

// Its totals, also when it has ended.
void add_account(MetricFamilies& out, const MetricLabels& labels, const JobSummary& job) {
  out.gauge("hpctl_cluster_job_step", "Last completed step", labels, static_cast<double>(job.step));
  if (job.total_steps > 0) {
    out.gauge("hpctl_cluster_job_total_steps", "Steps that it is to make", labels,
              static_cast<double>(job.total_steps));
  }
  out.counter("hpctl_cluster_job_restarts_total", "Recoveries begun", labels,
              static_cast<uint64_t>(job.restarts));
  const TimeAccount account = account_of(job);
  for (const TimePart& part : parts_of(account)) {
    out.gauge("hpctl_cluster_job_time_seconds", kTimeHelp, with(labels, "part", part.name),
              static_cast<double>(part.ms) / 1000);
  }
  if (const auto share = goodput_of(account)) {
    out.gauge("hpctl_cluster_job_goodput_ratio",
              "Share of training in the time since the first step", labels, *share);
  }
}

// Its parts, as long as it goes on; as many of its nodes as `room` allows.
void add_parts(MetricFamilies& out, const MetricLabels& labels, const JobSummary& job,
               size_t& room) {
  if (job.tokens_per_second > 0) {
    out.gauge("hpctl_cluster_job_tokens_per_second",
              "Tokens per second of the whole job, while it trains", labels, job.tokens_per_second);
  }
  out.gauge("hpctl_cluster_job_nodes", "Nodes that it has, spares with them", labels,
            static_cast<double>(job.nodes.size()));
  out.gauge("hpctl_cluster_job_ranks", "Its ranks", labels, job.ranks);
  for (const std::string& node : job.nodes) {
    if (room == 0) return;
    --room;
    out.gauge("hpctl_cluster_job_node_info", "1 for each node of the job",
              with(labels, "node", node), 1);
  }
}

}  // namespace

const std::vector<std::string>& job_states() {
  static const std::vector<std::string> names = {"PENDING",   "STARTING", "RUNNING",  "RECOVERING",
                                                 "SUSPENDED", "STOPPING", "FINISHED", "FAILED",
                                                 "CANCELLED", "TIMEOUT"};
  return names;
}

void FleetMetrics::show(std::vector<FleetJob> jobs) {
  const std::lock_guard lock(mutex_);
  jobs_ = std::move(jobs);
  shown_ = true;
}

void FleetMetrics::show_lemons(std::vector<LemonScore> scores) {
  const std::lock_guard lock(mutex_);
  lemons_ = std::move(scores);
}

void FleetMetrics::show_findings(std::vector<Finding> findings) {
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  findings.resize(std::min(findings.size(), kMaxFleetFindings));
  const std::lock_guard lock(mutex_);
  findings_ = std::move(findings);
}

void FleetMetrics::add_to(MetricFamilies& out) const {
  const std::lock_guard lock(mutex_);
  if (!shown_) return;
  const size_t listed = std::min(jobs_.size(), kMaxFleetJobs);
  size_t room = kMaxFleetNodes;
  for (size_t i = 0; i < listed; ++i) {
    const JobSummary& job = jobs_[i].summary;
    const MetricLabels labels = {
        {"job", to_string(job.job)}, {"name", job.name}, {"user", jobs_[i].user}};
    add_state(out, labels, job);
    if (!job.is_told()) continue;
    add_account(out, labels, job);
    if (!job.ended_at.is_known()) add_parts(out, labels, job, room);
  }
  for (size_t i = 0; i < std::min(lemons_.size(), kMaxFleetLemons); ++i) {
    out.gauge("hpctl_cluster_node_lemon_score",
              "Evidence against a node in the jobs of all users, fading with a week",
              {{"node", lemons_[i].node}, {"instance", lemons_[i].instance}}, lemons_[i].score);
  }
  for (const Finding& finding : findings_) {
    const MetricLabels job = {
        {"job", to_string(finding.job)}, {"name", finding.name}, {"user", finding.user}};
    out.gauge("hpctl_cluster_job_finding", "1 for each finding that stands, of jobs of all users",
              with_finding(job, finding), 1);
  }
  out.gauge("hpctl_cluster_jobs_without_metrics", "Jobs beyond those that have series", {},
            static_cast<double>(jobs_.size() - listed));
}

}  // namespace hpctl
