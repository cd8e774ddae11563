// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/run_cluster.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <csignal>

#include "common/base/descriptor_limit.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/node_address.h"
#include "common/base/paths.h"
#include "controller/access/tcp_access.h"
#include "controller/cluster/service.h"
#include "controller/publish/audit_log.h"
#include "controller/publish/scrape_targets.h"
#include "controller/starter.h"

namespace hpctl::cluster {
namespace {

constexpr int kMaxServerThreads = 32;  // calls at once; more are refused
constexpr size_t kMaxServerBytes = 256U << 20;
constexpr timespec kAuditTick = {1, 0};
constexpr auto kShutdownGrace = std::chrono::milliseconds(500);

// Where the jobs' controllers listen: on the same address, unless that is all of them.
std::string listen_of_jobs(const std::string& listen) {
  const std::string address = listen.substr(0, listen.rfind(':'));
  return address == "0.0.0.0" ? "" : address + ":0";
}

std::unique_ptr<grpc::Server> build_server(ClusterService& service, const std::string& listen,
                                           int& port) {
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("hpcontroller --cluster");
  quota.SetMaxThreads(kMaxServerThreads).Resize(kMaxServerBytes);
  builder.SetResourceQuota(quota);
  builder.RegisterService(&service);
  // Both directions of every call are MUNGE credentials: no secret is in the clear.
  add_tcp_listener(builder, listen, grpc::InsecureServerCredentials(), port);
  return builder.BuildAndStart();
}

// Of the host that the service's own metrics are on.
std::string metrics_of_jobs(const std::string& metrics, uint16_t port) {
  return metrics.empty() ? "" : metrics.substr(0, metrics.rfind(':') + 1) + std::to_string(port);
}

// The service's own and those of its jobs' controllers; `metrics` "" = the service ends, and with
// it what is known of them.
void publish_targets(const ControllerOptions& options, const std::string& metrics,
                     const Supervisor::MetricsPorts& of_jobs) {
  std::vector<ScrapeTarget> targets = {{metrics, {{"hpctl_node", options.node}}}};
  for (const auto& [key, port] : of_jobs) {
    targets.push_back({metrics_of_jobs(metrics, port),
                       {{"hpctl_job", std::to_string(key.job)}, {"hpctl_node", options.node}}});
  }
  publish_scrape_targets(scrape_targets_path(options.state_dir),
                         scrape_targets(targets, node_address()));
}

Outcome serve(const ControllerOptions& options, Starter& starter, const sigset_t& signals) {
  Appointed appointed;
  HP_TRY_ASSIGN(appointed.operators,
                People::parse(options.operators, "--operators or HPCTL_OPERATORS"));
  HP_TRY_ASSIGN(appointed.readers, People::parse(options.readers, "--readers or HPCTL_READERS"));
  HP_TRY(make_directories(options.state_dir, 0700));
  HP_TRY_ASSIGN(const UniqueFd lock, lock_file(options.state_dir + "/lock"));
  HP_TRY_ASSIGN(const std::string programs, program_directory());
  HP_TRY_ASSIGN(JobRows rows, JobRows::open(options.state_dir + "/jobs"));
  const std::unique_ptr<Metrics> metrics = open_metrics(options.metrics).metrics;
  const std::string address_of_metrics = metrics ? metrics->address() : "";
  if (metrics) {
    log_info("metrics on " + address_of_metrics);
    publish_targets(options, address_of_metrics, {});
  }
  Supervisor supervisor({programs + "/hpcontroller", options.node, listen_of_jobs(options.listen),
                         metrics_of_jobs(address_of_metrics, 0)},
                        std::move(rows), metrics.get(),
                        [&](const Supervisor::MetricsPorts& of_jobs) {
                          publish_targets(options, address_of_metrics, of_jobs);
                        });
  HP_TRY(supervisor.start());
  Summaries summaries([&supervisor] { return supervisor.addresses(); }, metrics.get());
  summaries.start();
  const SystemClock clock;
  AuditLog audit(options.state_dir + "/audit.jsonl", true, clock);
  ClusterService service(supervisor, summaries, options.node, std::move(appointed),
                         [&audit](AuditEntry entry) { audit.record(std::move(entry)); });
  int port = 0;
  const auto server = build_server(service, options.listen, port);
  if (server == nullptr || port == 0) {
    return Error{ErrorCode::kUnavailable,
                 "cannot listen on " + options.listen +
                     ": it is not an address of this machine, or the port is in use; see --listen"};
  }
  const std::string address =
      options.listen.substr(0, options.listen.rfind(':') + 1) + std::to_string(port);
  log_info("cluster controller on " + address + ", state in " + options.state_dir);
  starter.serving();
  while (::sigtimedwait(&signals, nullptr, &kAuditTick) < 0) audit.tick();
  log_info("ending: asked by a signal; the jobs' controllers go on");
  summaries.stop();
  supervisor.stop();
  server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  server->Wait();
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
  raise_descriptor_limit();  // two a job
  Starter starter(options.ready_fd, -1);
  const Outcome served = serve(options, starter, signals);
  if (served.ok()) return 0;
  log_error(served.error().message);
  starter.failed(served.error());
  return 1;
}

}  // namespace hpctl::cluster
