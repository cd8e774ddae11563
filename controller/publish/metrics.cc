// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/time_account.h"
#include "controller/publish/https_server.h"
#include "controller/publish/job_metrics.h"
#include "controller/publish/lemon_metrics.h"
#include "controller/publish/train_metrics.h"

namespace hpctl {
namespace {

using prometheus::Histogram;
using Labels = std::map<std::string, std::string>;

const Histogram::BucketBoundaries& seconds_buckets() {
  static const Histogram::BucketBoundaries bounds = {0.05, 0.1, 0.25, 0.5, 1,  2,
                                                     5,    10,  30,   60,  300};
  return bounds;
}

const Histogram::BucketBoundaries& commit_buckets() {
  static const Histogram::BucketBoundaries bounds = {0.0002, 0.0005, 0.001, 0.002, 0.005,
                                                     0.01,   0.05,   0.1,   0.5,   1};
  return bounds;
}

constexpr const char* kMetricsPath = "/metrics";
constexpr const char* kHealthPath = "/healthz";
constexpr int kHttpThreads = 8;
constexpr int kRequestTimeoutMs = 2'000;

// Of civetweb. Its own default waits 30 s for a request.
std::vector<std::string> server_options(const std::string& address) {
  return {"listening_ports",    address,
          "num_threads",        std::to_string(kHttpThreads),
          "request_timeout_ms", std::to_string(kRequestTimeoutMs),
          "enable_keep_alive",  "no",
          "tcp_nodelay",        "1",
          "linger_timeout_ms",  std::to_string(kRequestTimeoutMs)};
}

// A page that says that the process answers; its own registry holds one gauge.
std::shared_ptr<prometheus::Registry> make_health() {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildGauge()
      .Name("hpctl_controller_up")
      .Help("1 while the controller answers")
      .Register(*registry)
      .Add({})
      .Set(1);
  return registry;
}

// Has no series: it is told of the scrapes.
class ScrapeWatch final : public prometheus::Collectable {
 public:
  explicit ScrapeWatch(Metrics::Scraped scraped) : scraped_(std::move(scraped)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    if (scraped_) scraped_();
    return {};
  }

 private:
  const Metrics::Scraped scraped_;
};

// The label `kind` of a fault (docs/metrics.md).
const char* kind_of(const core::Fault& fault) {
  if (fault.in_order) return "order";
  if (fault.damage) return "checkpoint";
  if (fault.hang) return "hang";
  if (fault.rank >= 0) return "worker";
  return fault.node.empty() ? "job" : "node";
}

}  // namespace

struct Metrics::Parts {
  explicit Parts(const Scraped& scraped) : scrapes(std::make_shared<ScrapeWatch>(scraped)) {
    set("hpctl_build_info", "1, with the version of this controller", {{"version", HPCTL_VERSION}},
        1);
  }

  using Page = std::vector<std::shared_ptr<prometheus::Collectable>>;
  // What is at a path; they are asked in this order.
  Page page(const std::string& path) const {
    if (path == kMetricsPath) return {scrapes, registry, train, jobs, lemons, fleet};
    return path == kHealthPath ? Page{health} : Page{};
  }
  std::optional<std::string> text_at(const std::string& path) const {
    const Page parts = page(path);
    if (parts.empty()) return std::nullopt;
    std::vector<prometheus::MetricFamily> all;
    for (const auto& part : parts) {
      for (prometheus::MetricFamily& one : part->Collect()) all.push_back(std::move(one));
    }
    return prometheus::TextSerializer().Serialize(all);
  }

  // Once, with the port that is listened on; nullopt where it cannot be.
  std::optional<int> serve(const std::string& address, const ServedIdentity* served) {
    if (served != nullptr) {
      auto opened =
          HttpsServer::open(address, *served, [this](const auto& at) { return text_at(at); });
      if (!opened.ok()) return std::nullopt;
      https = std::move(*opened);
      return https->port();
    }
    try {
      http = std::make_unique<prometheus::Exposer>(server_options(address));
    } catch (const std::exception&) {
      return std::nullopt;  // civetweb says no more than that it failed
    }
    for (const char* path : {kMetricsPath, kHealthPath}) {
      for (const auto& part : page(path)) http->RegisterCollectable(part, path);
    }
    const auto ports = http->GetListeningPorts();
    return ports.empty() ? std::nullopt : std::optional(ports.front());
  }

  template <typename Builder>
  auto& family(Builder builder, const char* name, const char* help) {
    return builder.Name(name).Help(help).Register(*registry);
  }
  void set(const char* name, const char* help, const Labels& labels, double value) {
    family(prometheus::BuildGauge(), name, help).Add(labels).Set(value);
  }

  std::shared_ptr<prometheus::Collectable> scrapes;
  std::shared_ptr<prometheus::Registry> registry =
      std::make_shared<prometheus::Registry>(prometheus::Registry::InsertBehavior::Merge);
  std::shared_ptr<TrainMetrics> train = std::make_shared<TrainMetrics>();
  std::shared_ptr<JobMetrics> jobs = std::make_shared<JobMetrics>();
  std::shared_ptr<LemonMetrics> lemons = std::make_shared<LemonMetrics>();
  std::shared_ptr<FleetMetrics> fleet = std::make_shared<FleetMetrics>();
  std::shared_ptr<prometheus::Registry> health = make_health();
  // One of them; last, because their threads read the registries.
  std::unique_ptr<prometheus::Exposer> http;
  std::unique_ptr<HttpsServer> https;
};

Result<std::unique_ptr<Metrics>> Metrics::open(const std::string& address, const Scraped& scraped,
                                               const ServedIdentity* served) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "there are no metrics: HPCTL_METRICS or --metrics "
                 "wants HOST:PORT, got \"" +
                     address + "\""};
  }
  const std::string host = address.substr(0, colon + 1);
  for (const std::string& wanted : {address, host + "0"}) {
    auto parts = std::make_unique<Parts>(scraped);
    const auto port = parts->serve(wanted, served);
    if (!port) continue;
    const std::string bound = host + std::to_string(*port);
    std::unique_ptr<Metrics> metrics(new Metrics(bound, std::move(parts)));
    if (wanted != address) {
      metrics->moved_ = "the metrics are on " + bound + ": " + address + " is in use";
    }
    return metrics;
  }
  return Error{ErrorCode::kUnavailable,
               "there are no metrics: " + host.substr(0, colon) +
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

Metrics::Metrics(std::string address, std::unique_ptr<Parts> parts)
    : address_(std::move(address)), parts_(std::move(parts)) {}

Metrics::~Metrics() = default;

uint16_t Metrics::port() const {
  return static_cast<uint16_t>(std::stoul(address_.substr(address_.rfind(':') + 1)));
}

void Metrics::transaction(double seconds, size_t events) {
  parts_
      ->family(prometheus::BuildHistogram(), "hpctl_controller_transaction_seconds",
               "Duration of one commit")
      .Add({}, commit_buckets())
      .Observe(seconds);
  parts_
      ->family(prometheus::BuildCounter(), "hpctl_controller_events_total",
               "Events through the core")
      .Add({})
      .Increment(static_cast<double>(events));
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
  parts_->jobs->show(view);
  if (view.snapshot_step > 0) {
    parts_->set("hpctl_job_snapshot_step", "Newest step that is in the memory of two nodes", job,
                static_cast<double>(view.snapshot_step));
  }
  const int64_t end_ms = view.ended_wall_ms > 0 ? view.ended_wall_ms : SystemClock().wall_ms();
  const TimeAccount account = account_of(view.spent, end_ms - view.submitted_wall_ms);
  for (const TimePart& part : parts_of(account)) {
    Labels labels = job;
    labels["part"] = part.name;
    parts_->set("hpctl_job_time_seconds", "Where the time since the submission went", labels,
                static_cast<double>(part.ms) / 1000);
  }
  const auto goodput = goodput_of(account);
  if (!goodput) return;
  parts_->set("hpctl_job_goodput_ratio", "Share of training in the time since the first step", job,
              *goodput);
  parts_->set("hpctl_job_ettr_ratio", "Share of training in all the time since the submission", job,
              static_cast<double>(account.training_ms) / static_cast<double>(account.wall_ms));
}

void Metrics::train(const JobView& view, JobProgress progress,
                    const core::BadStepRecord& bad_step) {
  parts_->train->show(view, std::move(progress), bad_step);
}

void Metrics::lemons(const JobView& view, const std::vector<LemonScore>& scores) {
  parts_->lemons->show(view, scores);
}

void Metrics::recovery(uint64_t job, const std::string& name, double seconds) {
  parts_
      ->family(prometheus::BuildHistogram(), "hpctl_job_recovery_seconds",
               "From the last step before a fault to its repetition")
      .Add({{"job", std::to_string(job)}, {"name", name}}, seconds_buckets())
      .Observe(seconds);
}

void Metrics::detection(uint64_t job, const std::string& name, double seconds) {
  parts_
      ->family(prometheus::BuildHistogram(), "hpctl_job_detection_seconds",
               "From the last step before a fault until it was known")
      .Add({{"job", std::to_string(job)}, {"name", name}}, seconds_buckets())
      .Observe(seconds);
}

void Metrics::fault(uint64_t job, const std::string& name, const core::Fault& fault) {
  parts_
      ->family(prometheus::BuildCounter(), "hpctl_job_faults_total",
               "Faults by their kind and the node that is to blame")
      .Add({{"job", std::to_string(job)},
            {"name", name},
            {"kind", kind_of(fault)},
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

void Metrics::fleet(std::vector<FleetJob> jobs) { parts_->fleet->show(std::move(jobs)); }

void Metrics::controller(size_t agents, size_t outbox) {
  parts_->set("hpctl_controller_agents", "Agents connected", {}, static_cast<double>(agents));
  parts_->set("hpctl_controller_outbox", "Actions not yet acknowledged", {},
              static_cast<double>(outbox));
}

}  // namespace hpctl
