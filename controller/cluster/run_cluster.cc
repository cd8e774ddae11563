// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/run_cluster.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <csignal>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/log.h"
#include "common/job/paths.h"
#include "common/net/host_port.h"
#include "common/net/node_address.h"
#include "common/process/descriptor_limit.h"
#include "common/process/log_writer.h"
#include "controller/access/reloading_credentials.h"
#include "controller/access/tcp_access.h"
#include "controller/cluster/certificate_renewer.h"
#include "controller/cluster/service.h"
#include "controller/leadership/starter.h"
#include "controller/publish/audit_log.h"
#include "controller/publish/scrape_targets.h"

namespace hpctl::cluster {
namespace {

constexpr int kMaxServerThreads = 32;  // calls at once; more are refused
constexpr size_t kMaxServerBytes = 256U << 20;
constexpr timespec kTick = {1, 0};
constexpr int64_t kLastLogMs = 2'000;
constexpr auto kShutdownGrace = std::chrono::milliseconds(500);

// Where the jobs' controllers listen: on the same address, unless that is all of them.
std::string listen_of_jobs(const std::string& listen) {
  const HostPort at = HostPort::parse(listen).value();
  return at.host == "0.0.0.0" ? "" : at.with_port(0);
}

// The listeners of the service, and its proof of identity.
class Doors {
 public:
  // `keeper` null = MUNGE alone; else it outlives this.
  Doors(const ControllerOptions& options, const CertificateRenewer* keeper)
      : listen_(options.listen),
        plain_listen_(options.plain_listen),
        credentials_(keeper == nullptr ? grpc::InsecureServerCredentials()
                                       : reloading_credentials(keeper->served())) {}

  Outcome open(ClusterService& service) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota("hpcontroller --cluster");
    quota.SetMaxThreads(kMaxServerThreads).Resize(kMaxServerBytes);
    builder.SetResourceQuota(quota);
    builder.RegisterService(&service);
    // Both directions of every call are MUNGE credentials: no secret is in the clear.
    add_tcp_listener(builder, listen_, credentials_, port_);
    int plain_port = -1;
    if (!plain_listen_.empty()) {
      add_tcp_listener(builder, plain_listen_, grpc::InsecureServerCredentials(), plain_port);
    }
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) return cannot_listen(listen_, "--listen");
    if (plain_port == 0) return cannot_listen(plain_listen_, "--plain-listen");
    return Ok{};
  }
  std::string address() const {
    return HostPort::parse(listen_).value().with_port(static_cast<uint16_t>(port_));
  }
  void close() {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
  }

 private:
  static Error cannot_listen(const std::string& address, const char* option) {
    return Error{ErrorCode::kUnavailable, "cannot listen on " + address +
                                              ": it is not an address of this machine, or the "
                                              "port is in use; see " +
                                              option};
  }

  const std::string listen_;
  const std::string plain_listen_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;  // outlive the server
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

int64_t now_s() { return SystemClock().wall_ms() / 1'000; }

// By which others may call this machine.
LeafNames names_of(const ControllerOptions& options) {
  LeafNames names{{options.node, host_name()}, own_addresses()};
  for (const std::string& address : {options.listen, options.metrics}) {
    const auto parsed = HostPort::parse(address);
    if (parsed.ok()) names.addresses.push_back(parsed->bare_host());
  }
  for (auto* list : {&names.hosts, &names.addresses}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  return names;
}

// Null where none is configured.
Result<std::unique_ptr<CertificateRenewer>> open_keeper(const ControllerOptions& options) {
  if (options.ca_dir.empty()) return std::unique_ptr<CertificateRenewer>();
  return CertificateRenewer::open(options.ca_dir, names_of(options), now_s());
}

// On the host of the service's own metrics.
std::string metrics_of_jobs(const std::string& metrics, uint16_t port) {
  return metrics.empty() ? "" : HostPort::parse(metrics).value().with_port(port);
}

// The targets of the service and of its jobs' controllers; `metrics` "" = the service ends, and its
// targets go.
void publish_targets(const ControllerOptions& options, const std::string& metrics,
                     const Supervisor::MetricsPorts& of_jobs) {
  std::map<std::string, std::string> labels = {{"hpctl_node", options.node}};
  if (!options.ca_dir.empty()) labels["__scheme__"] = "https";  // Prometheus's name for it
  std::vector<ScrapeTarget> targets = {{metrics, labels}};
  for (const auto& [key, port] : of_jobs) {
    targets.push_back({metrics_of_jobs(metrics, port),
                       {{"hpctl_job", std::to_string(key.job)}, {"hpctl_node", options.node}}});
  }
  publish_scrape_targets(scrape_targets_path(options.state_dir),
                         scrape_targets(targets, node_address()));
}

void renew(CertificateRenewer* keeper, Metrics* metrics) {
  if (keeper == nullptr) return;
  keeper->tick(now_s());
  if (metrics != nullptr) {
    metrics->certificates(keeper->leaf_ends_s(), keeper->authority_ends_s());
  }
}

Outcome serve(const ControllerOptions& options, Starter& starter, const sigset_t& signals) {
  Appointed appointed;
  HP_TRY_ASSIGN(appointed.operators,
                OperatorAcl::parse(options.operators, "--operators or HPCTL_OPERATORS"));
  HP_TRY_ASSIGN(appointed.readers,
                OperatorAcl::parse(options.readers, "--readers or HPCTL_READERS"));
  HP_TRY(make_directories(options.state_dir, 0700));
  HP_TRY_ASSIGN(const UniqueFd lock, lock_file(options.state_dir + "/lock"));
  HP_TRY_ASSIGN(const std::string programs, program_directory());
  HP_TRY_ASSIGN(JobRows rows, JobRows::open(options.state_dir + "/jobs"));
  HP_TRY_ASSIGN(const std::unique_ptr<CertificateRenewer> keeper, open_keeper(options));
  const std::unique_ptr<Metrics> metrics =
      open_metrics(options.metrics, {}, keeper ? &keeper->served() : nullptr).metrics;
  const std::string address_of_metrics = metrics ? metrics->address() : "";
  if (metrics) {
    log_info("metrics on " + address_of_metrics);
    publish_targets(options, address_of_metrics, {});
  }
  const SystemClock clock;
  FleetLemons lemons(options.state_dir, clock);
  Supervisor supervisor(
      {programs + "/hpcontroller", options.node, listen_of_jobs(options.listen),
       metrics_of_jobs(address_of_metrics, 0), [&lemons] { return lemons.lemons(); }},
      std::move(rows), metrics.get(), [&](const Supervisor::MetricsPorts& of_jobs) {
        publish_targets(options, address_of_metrics, of_jobs);
      });
  HP_TRY(supervisor.start());
  Summaries summaries([&supervisor] { return supervisor.addresses(); }, lemons, metrics.get(),
                      options.state_dir + "/ended.json");
  summaries.start();
  AuditLog audit(options.state_dir, options.state_dir + "/audit.jsonl", true, clock);
  FleetPage page(
      [&] { return list_fleet(supervisor, summaries, std::nullopt, {}, kMaxJobs, true); },
      [&lemons] { return lemons.scores(); }, appointed, options.page, clock, options.node);
  ClusterService service(supervisor, summaries, lemons, page, options.node, std::move(appointed),
                         [&audit](AuditEntry entry) { audit.record(std::move(entry)); });
  Doors doors(options, keeper.get());
  HP_TRY(doors.open(service));
  log_info("cluster controller on " + doors.address() + ", state in " + options.state_dir);
  starter.serving();
  do {
    audit.tick();
    renew(keeper.get(), metrics.get());
  } while (::sigtimedwait(&signals, nullptr, &kTick) < 0);
  log_info("ending: asked by a signal; the jobs' controllers go on");
  page.stop();
  summaries.stop();
  lemons.save(true);
  supervisor.stop();
  doors.close();
  if (const auto hung = audit.stop(); !hung.empty()) leave_with_hung_lanes(hung, 0);
  if (metrics) publish_targets(options, "", {});
  return Ok{};
}

}  // namespace

int run_cluster(const ControllerOptions& options) {
  set_log_component("cluster");
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  LogWriter log;
  if (const auto started = log.start(OwnLog::kThroughWriter); !started.ok()) {
    log_warning(started.error().message + "; a log on a file server may hold this process up");
  }
  raise_descriptor_limit();  // two a job
  Starter starter(options.ready_fd, -1);
  const Outcome served = serve(options, starter, signals);
  if (!served.ok()) {
    log_error(served.error().message);
    starter.failed(served.error());
  }
  log.finish(kLastLogMs);
  return served.ok() ? 0 : 1;
}

}  // namespace hpctl::cluster
