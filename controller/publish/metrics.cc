// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/job/time_account.h"
#include "controller/publish/finding_metrics.h"
#include "controller/publish/https_server.h"
#include "controller/publish/job_metrics.h"
#include "controller/publish/lemon_metrics.h"
#include "controller/publish/metrics_server.h"
#include "controller/publish/train_metrics.h"

namespace hpctl {
namespace {

using prometheus::Histogram;
using Labels = std::map<std::string, std::string>;

const Histogram::BucketBoundaries& seconds_buckets() {
  static const Histogram::BucketBoundaries bounds(kLossBuckets.begin(), kLossBuckets.end());
  return bounds;
}

const Histogram::BucketBoundaries& commit_buckets() {
  static const Histogram::BucketBoundaries bounds = {0.0002, 0.0005, 0.001, 0.002, 0.005,
                                                     0.01,   0.05,   0.1,   0.5,   1};
  return bounds;
}

}  // namespace

const char* fault_kind(const core::Fault& fault) {
  if (fault.in_order) return "order";
  if (fault.damage) return "checkpoint";
  if (fault.hang) return "hang";
  if (fault.rank >= 0) return "worker";
  return fault.node.empty() ? "job" : "node";
}

struct Metrics::Parts {
  explicit Parts(Scraped told) : scraped(std::move(told)) {
    set("hpctl_build_info", "1, with the version of this controller", {{"version", HPCTL_VERSION}},
        1);
  }

  template <typename Builder>
  auto& family(Builder builder, const char* name, const char* help) {
    return builder.Name(name).Help(help).Register(registry);
  }
  void set(const char* name, const char* help, const Labels& labels, double value) {
    family(prometheus::BuildGauge(), name, help).Add(labels).Set(value);
  }

  auto& recoveries() {
    return family(prometheus::BuildHistogram(), "hpctl_job_recovery_seconds",
                  "From the last step before a fault to its repetition");
  }
  auto& detections() {
    return family(prometheus::BuildHistogram(), "hpctl_job_detection_seconds",
                  "From the last step before a fault until it was known");
  }
  auto& faults() {
    return family(prometheus::BuildCounter(), "hpctl_job_faults_total",
                  "Faults by their kind and the node that is to blame");
  }
  auto& events() {
    return family(prometheus::BuildCounter(), "hpctl_controller_events_total",
                  "Events through the core");
  }

  // Any thread.
  std::optional<std::vector<std::string>> answer(const std::string& path) const {
    MetricFamilies out;
    if (path == "/healthz") {
      out.gauge("hpctl_controller_up", "1 while the controller answers", {}, 1);
      return out.take();
    }
    if (path != "/metrics") return std::nullopt;
    if (scraped) scraped();
    train.add_to(out);
    jobs.add_to(out);
    lemons.add_to(out);
    findings.add_to(out);
    fleet.add_to(out);
    std::vector<std::string> text = out.take();
    text.push_back(prometheus::TextSerializer().Serialize(registry.Collect()));
    return text;
  }

  // Once, with the port that is listened on; nullopt where it cannot be (civetweb says no more).
  std::optional<uint16_t> serve(const std::string& address, const ServedIdentity* served) {
    if (served == nullptr) {
      http = MetricsServer::open(address, [this](const auto& path) { return answer(path); });
      return http == nullptr ? std::nullopt : std::optional<uint16_t>(http->port());
    }
    auto opened = HttpsServer::open(address, *served, [this](const auto& path) {
      std::optional<std::string> text;
      if (const auto pieces = answer(path)) {
        text.emplace();
        for (const std::string& piece : *pieces) *text += piece;
      }
      return text;
    });
    if (!opened.ok()) return std::nullopt;
    https = std::move(*opened);
    return https->port();
  }

  const Scraped scraped;
  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};
  TrainMetrics train;
  JobMetrics jobs;
  LemonMetrics lemons;
  FindingMetrics findings;
  FleetMetrics fleet;
  // One of them; last, because their threads ask the others.
  std::unique_ptr<MetricsServer> http;
  std::unique_ptr<HttpsServer> https;
};

Result<std::unique_ptr<Metrics>> Metrics::open(const std::string& address, const Scraped& scraped,
                                               const ServedIdentity* served) {
  const auto parsed = HostPort::parse(address);
  if (!parsed.ok()) {
    return Error{parsed.error().code,
                 "there are no metrics: HPCTL_METRICS or --metrics: " + parsed.error().message};
  }
  for (const std::string& wanted : {address, parsed->with_port(0)}) {
    auto parts = std::make_unique<Parts>(scraped);
    const auto port = parts->serve(wanted, served);
    if (!port) continue;
    std::unique_ptr<Metrics> metrics(new Metrics(HostPort{parsed->host, *port}, std::move(parts)));
    if (wanted != address) {
      metrics->moved_ = "the metrics are on " + metrics->address() + ": " + address + " is in use";
    }
    return metrics;
  }
  return Error{ErrorCode::kUnavailable,
               "there are no metrics: " + parsed->host +
                   " is not an address of this machine (HPCTL_METRICS or --metrics; 0.0.0.0 is "
                   "right on every one)"};
}

OpenedMetrics open_metrics(const std::string& address, const Metrics::Scraped& scraped,
                           const ServedIdentity* served) {
  OpenedMetrics opened;
  if (address.empty()) return opened;
  auto metrics = Metrics::open(address, scraped, served);
  if (metrics.ok()) opened.metrics = std::move(*metrics);
  opened.trouble = opened.metrics ? opened.metrics->moved() : metrics.error().message;
  if (!opened.trouble.empty()) log_warning(opened.trouble);
  return opened;
}

Metrics::Metrics(HostPort bound, std::unique_ptr<Parts> parts)
    : bound_(std::move(bound)), parts_(std::move(parts)) {}

Metrics::~Metrics() = default;

void Metrics::transaction(double seconds, size_t events) {
  parts_
      ->family(prometheus::BuildHistogram(), "hpctl_controller_transaction_seconds",
               "Duration of one commit")
      .Add({}, commit_buckets())
      .Observe(seconds);
  parts_->events().Add({}).Increment(static_cast<double>(events));
}

void Metrics::job(const JobView& view) {
  const Labels job = {{"job", std::to_string(view.job)}, {"name", view.name}};
  for (const std::string& state : job_states()) {
    Labels labels = job;
    labels["state"] = state;
    parts_->set("hpctl_job_state", "1 for the job's present state", labels, state == view.state);
  }
  parts_->set("hpctl_job_generation", "Newest generation", job,
              static_cast<double>(view.generation));
  size_t up = 0;
  for (const NodeView& node : view.nodes) up += node.state == "up" ? 1 : 0;
  parts_->set("hpctl_job_nodes_up", "Nodes whose agent is up", job, static_cast<double>(up));
  parts_->set("hpctl_job_checkpoint_step", "Newest durable checkpoint", job,
              static_cast<double>(view.checkpoint_step));
  parts_->jobs.show(view);
  if (view.snapshot_step > 0) {
    parts_->set("hpctl_job_snapshot_step", "Newest step that is in the memory of two nodes", job,
                static_cast<double>(view.snapshot_step));
  }
  const TimeAccount account = account_of(view, SystemClock().wall());
  for (const TimePart& part : parts_of(account)) {
    Labels labels = job;
    labels["part"] = part.name;
    parts_->set("hpctl_job_time_seconds", "Where the time since the submission went", labels,
                static_cast<double>(part.ms) / 1000);
  }
  const auto goodput = goodput_of(account);
  const auto ettr = ettr_of(account);
  if (!goodput || !ettr) return;
  parts_->set("hpctl_job_goodput_ratio", "Share of training in the time since the first step", job,
              *goodput);
  parts_->set("hpctl_job_ettr_ratio", "Share of training in all the time since the submission", job,
              *ettr);
}

void Metrics::train(const JobView& view, JobProgress progress,
                    const core::BadStepRecord& bad_step) {
  parts_->train.show(view, std::move(progress), bad_step);
}

void Metrics::lemons(const JobView& view, const std::vector<LemonScore>& scores) {
  parts_->lemons.show(view, scores);
}

void Metrics::findings(const JobView& view, const std::vector<Finding>& found) {
  parts_->findings.show(view, found);
}

void Metrics::losses(uint64_t job, const std::string& name, const LossCounts& counts) {
  const Labels labels = {{"job", std::to_string(job)}, {"name", name}};
  const auto fill = [](Histogram& histogram, const LossHistogram& from) {
    histogram.ObserveMultiple({from.counts.begin(), from.counts.end()}, from.sum);
  };
  fill(parts_->recoveries().Add(labels, seconds_buckets()), counts.recovery);
  fill(parts_->detections().Add(labels, seconds_buckets()), counts.detection);
  for (const FaultCount& fault : counts.faults) {
    Labels counted = labels;
    counted["kind"] = fault.kind;
    counted["node"] = fault.node;
    parts_->faults().Add(counted).Increment(static_cast<double>(fault.count));
  }
}

void Metrics::former_events(uint64_t events) {
  parts_->events().Add({}).Increment(static_cast<double>(events));
}

void Metrics::recovery(uint64_t job, const std::string& name, double seconds) {
  parts_->recoveries()
      .Add({{"job", std::to_string(job)}, {"name", name}}, seconds_buckets())
      .Observe(seconds);
}

void Metrics::detection(uint64_t job, const std::string& name, double seconds) {
  parts_->detections()
      .Add({{"job", std::to_string(job)}, {"name", name}}, seconds_buckets())
      .Observe(seconds);
}

void Metrics::fault(uint64_t job, const std::string& name, const core::Fault& fault) {
  parts_->faults()
      .Add({{"job", std::to_string(job)},
            {"name", name},
            {"kind", fault_kind(fault)},
            {"node", fault.node}})
      .Increment();
}

void Metrics::cluster(size_t jobs, size_t serving) {
  parts_->set("hpctl_cluster_jobs", "Jobs of the cluster controller", {},
              static_cast<double>(jobs));
  parts_->set("hpctl_cluster_jobs_serving", "Those whose controller serves now", {},
              static_cast<double>(serving));
}

void Metrics::certificates(int64_t leaf_ends_s, int64_t authority_ends_s) {
  const auto set = [this](const char* name, const char* help, int64_t seconds) {
    parts_->set(name, help, {}, static_cast<double>(seconds));
  };
  set("hpctl_cluster_certificate_expiry_timestamp_seconds",
      "Until when the certificate that the cluster controller shows counts", leaf_ends_s);
  set("hpctl_cluster_ca_expiry_timestamp_seconds",
      "Until when the certificate of its newest authority counts", authority_ends_s);
}

void Metrics::fleet(std::vector<FleetJob> jobs) { parts_->fleet.show(std::move(jobs)); }

void Metrics::fleet_lemons(std::vector<LemonScore> scores) {
  parts_->fleet.show_lemons(std::move(scores));
}

void Metrics::fleet_findings(std::vector<Finding> findings) {
  parts_->fleet.show_findings(std::move(findings));
}

void Metrics::controller(size_t agents, size_t outbox) {
  parts_->set("hpctl_controller_agents", "Agents connected", {}, static_cast<double>(agents));
  parts_->set("hpctl_controller_outbox", "Actions not yet acknowledged", {},
              static_cast<double>(outbox));
}

}  // namespace hpctl
