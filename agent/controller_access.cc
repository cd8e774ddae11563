// SPDX-License-Identifier: Apache-2.0
#include "agent/controller_access.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/base/log.h"
#include "common/job/job_files.h"
#include "common/net/node_address.h"
#include "common/net/tcp_probe.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/status.h"

namespace hpctl::agent {
namespace {

constexpr auto kStartTimeout = std::chrono::seconds(5);
constexpr auto kProbePatience = std::chrono::milliseconds(300);
constexpr auto kClusterTimeout = std::chrono::seconds(3);
// An agent hears so of a refusal. That the successor serves, it finds in the job's directory.
constexpr uint32_t kRefusalPatienceMs = 500;
// How often to ask a cluster controller about one epoch: twice, or four times if it is busy.
constexpr int kPatience = 4;
constexpr int kCostOfAnswer = 2;  // or of silence
constexpr int kCostOfBusy = 1;

Outcome to_outcome(const absl::Status& status) {
  if (status.ok()) return Ok{};
  return Error{ErrorCode::kUnavailable, message_of(status)};
}

class HomeAccess final : public ControllerAccess {
 public:
  explicit HomeAccess(const HomePaths& paths) : paths_(paths) {}

  // The other end of its socket answers at once or not at all.
  Result<Dialled> connect(Patience& patience) override {
    return Dialled{connect_controller(paths_), patience.next(0)};
  }
  bool is_succeeded() const override { return false; }
  int64_t look_every_ms() const override { return Patience::look_every_ms(1'000); }
  StartPlan start_plan() const override { return {}; }
  int64_t orphan_timeout_ms() const override { return local_limits().orphan_ms; }
  Outcome start() override {
    return to_outcome(
        ensure_controller(paths_, std::chrono::steady_clock::now() + kStartTimeout).status());
  }
  std::string address() const override { return ""; }

 private:
  const HomePaths paths_;
};

// Agents start successors one after the other, in the order of the job's nodes: the first that
// finds the old controller dead from where it is takes over, the others then find the new one.
class JobAccess final : public ControllerAccess {
 public:
  JobAccess(const HomePaths& paths, JobId job, const std::string& node)
      : paths_(paths), job_(job), node_(node) {}

  Result<Dialled> connect(Patience& patience) override {
    plan_ = StartPlan::never();
    read_limits();
    HP_TRY_ASSIGN(const auto verdict, standing_verdict(paths_.home(), restart_count()));
    if (verdict) {
      return Error{ErrorCode::kFailedPrecondition,
                   "the job has ended with " + std::to_string(*verdict)};
    }
    HP_TRY_ASSIGN(const ControllerRecord found, find_controller(paths_.home()));
    nodes_ = found.nodes.size();
    const int64_t attempt_ms = patience.next(nodes_);
    HP_TRY_ASSIGN(auto channel,
                  connect_as_agent(paths_.home(), found, static_cast<int>(attempt_ms)));
    if (found.restart_count == restart_count()) plan_ = plan_after(found);
    address_ = node_address_towards(found.address);
    epoch_ = found.epoch;
    return Dialled{std::move(channel), attempt_ms};
  }
  bool is_succeeded() const override {
    const auto newest = newest_controller_epoch(paths_.home());
    return newest.ok() && *newest > epoch_;
  }
  int64_t look_every_ms() const override { return Patience::look_every_ms(nodes_); }
  StartPlan start_plan() const override { return plan_; }
  int64_t orphan_timeout_ms() const override { return orphan_timeout_ms_; }
  // A cluster controller is asked first, since the job's controller may only be gone for a moment.
  // It is asked twice about each, because a controller that was just cut off looks alive for a
  // while: its beat moves until it has missed its nodes. The same holds for a cluster controller
  // that does not answer in time although its machine accepts connections: it may only have got no
  // CPU time. If no successor appears by then, this node starts one. An overloaded service, as
  // after the loss of another head node, is asked more often.
  Outcome start() override {
    if (std::exchange(asked_about_, epoch_) != epoch_) patience_ = kPatience;
    if (patience_ > 0) {
      const int cost = cost_of(ask_cluster());
      patience_ -= cost;
      if (cost < kPatience) return Ok{};
    }
    return to_outcome(
        start_successor(paths_, job_, node_, std::chrono::steady_clock::now() + kStartTimeout));
  }
  std::string address() const override { return address_; }

 private:
  void read_limits() {
    if (has_limits_) return;
    const auto document = read_job_document(paths_.home());
    if (!document.ok()) return;
    orphan_timeout_ms_ = resolve(document->spec.limits, cluster_limits(false)).orphan_ms;
    has_limits_ = true;
  }
  // When this node would succeed the controller, in the order of the job's nodes.
  StartPlan plan_after(const ControllerRecord& controller) const {
    const auto& nodes = controller.nodes;
    const auto order = std::find(nodes.begin(), nodes.end(), node_) - nodes.begin();
    const auto there = std::find(nodes.begin(), nodes.end(), controller.node) - nodes.begin();
    const auto turn = order - (there < order ? 1 : 0);
    const bool asks = node_ != controller.node && turn < StartPlan::kAskingFirst;
    if (!asks || probe_tcp({controller.address}, kProbePatience).front() != TcpAnswer::kNone) {
      return StartPlan::successor(order);
    }
    return StartPlan::of_gone_machine(turn);
  }
  static std::string cluster() {
    const char* list = std::getenv("HPCTL_CLUSTER");
    return list == nullptr ? "" : list;
  }
  // kPatience: none will do it.
  static int cost_of(const Outcome& asked) {
    if (asked.ok()) return kCostOfAnswer;
    const ErrorCode code = asked.error().code;
    if (code == ErrorCode::kResourceExhausted) return kCostOfBusy;
    const bool is_silent =
        code == ErrorCode::kUnavailable && cluster_takes_connections(cluster(), kProbePatience);
    return is_silent ? kCostOfAnswer : kPatience;
  }
  // Ok also where it knows that another controller has the job.
  Outcome ask_cluster() const {
    if (cluster().empty()) {
      return Error{ErrorCode::kNotFound, "the job has no cluster controller"};
    }
    HP_TRY_ASSIGN(const std::string programs, program_directory());
    v1::Admission admission;
    admission.set_job(job_.value);
    admission.set_job_dir(paths_.home());
    admission.set_restart_count(restart_count());
    admission.set_programs(programs);
    admission.set_agent_tokens(true);
    admission.set_wait_ms(kRefusalPatienceMs);
    const auto admitted = admit_to_cluster(cluster(), admission, kClusterTimeout);
    if (admitted.ok()) return Ok{};
    const Error& error = admitted.error();
    log_warning(error.message);
    return error.code == ErrorCode::kAlreadyExists ? Outcome(Ok{}) : Outcome(error);
  }

  const HomePaths paths_;
  const JobId job_;
  const std::string node_;
  bool has_limits_ = false;
  int64_t orphan_timeout_ms_ = resolve(Limits{}, cluster_limits(false)).orphan_ms;
  StartPlan plan_ = StartPlan::never();
  std::string address_;
  size_t nodes_ = 0;          // of the job
  uint64_t epoch_ = 0;        // of the controller that connect() found
  uint64_t asked_about_ = 0;  // likewise, when a cluster controller was asked
  int patience_ = 0;          // with the cluster controller, about that one
};

}  // namespace

std::unique_ptr<ControllerAccess> make_controller_access(const HomePaths& paths, JobId job,
                                                         const std::string& node) {
  if (paths.is_one_job()) return std::make_unique<JobAccess>(paths, job, node);
  return std::make_unique<HomeAccess>(paths);
}

}  // namespace hpctl::agent
