// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/fleet_agents.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "agent/core/reconnect.h"
#include "common/rpc/job_channel.h"
#include "common/worker/worker_abi.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl::bench {
namespace {

constexpr uint64_t kPid = 4'000'000'000;  // of no process here
constexpr auto kBackOff = std::chrono::milliseconds(500);
constexpr auto kDialEvery = std::chrono::milliseconds(5);
constexpr auto kLookEvery = std::chrono::milliseconds(1);
constexpr int64_t kCollectivesPerStep = 64;

}  // namespace

// One stream at a time. A hold keeps the call alive while our threads may still start a write.
class FleetAgents::Agent final
    : public grpc::ClientBidiReactor<v1::AgentMessage, v1::ControllerMessage> {
 public:
  Agent(FleetAgents& fleet, int index) : fleet_(fleet) {
    for (int i = 0; i < kWorkersPerNode; ++i) ranks_.push_back(index * kWorkersPerNode + i);
    head_.set_job(fleet.job_.value);
    head_.set_node("n" + std::to_string(index));
    head_.set_boot_id("boot-" + std::to_string(index));
  }
  ~Agent() override { finish(); }

  bool is_to_dial() {
    const std::lock_guard lock(mutex_);
    return closed_ && Clock::now() - closed_at_ >= kBackOff;
  }

  int64_t patience(size_t nodes) {
    const std::lock_guard lock(mutex_);
    return patience_.next(nodes);
  }

  void connect(std::unique_ptr<v1::AgentLink::Stub> stub) {
    finish();
    v1::AgentMessage message = head_;
    v1::Register& agent = *message.mutable_register_agent();
    agent.set_holder_pid(kPid);
    agent.set_agent_pid(kPid);
    (*agent.mutable_capabilities())["beats_as_told"] = "1";
    const std::lock_guard lock(mutex_);
    agent.set_generation_seen(generation_);
    for (const int rank : running_ ? ranks_ : std::vector<int>())
      add_worker(*agent.add_workers(), rank);
    stub_ = std::move(stub);
    context_.emplace();
    closed_ = welcomed_ = is_done_ = false;
    stub_->async()->Connect(&*context_, this);
    AddHold();
    StartRead(&incoming_);
    outbox_.push_back(std::move(message));
    StartWrite(&outbox_.front());
    StartCall();
  }

  // False where none is due, or the one before has not left yet: it is left out.
  bool beat(Clock::time_point now, uint64_t step, uint64_t collective) {
    if (now.time_since_epoch() < due_.load()) return false;
    const std::lock_guard lock(mutex_);
    due_ = now.time_since_epoch() + interval_;
    if (!welcomed_ || closed_ || !outbox_.empty()) return false;
    v1::AgentMessage message = head_;
    v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
    for (const int rank : running_ ? ranks_ : std::vector<int>()) {
      v1::WorkerProgress& worker = *heartbeat.add_workers();
      add_worker(worker, rank);
      worker.set_phase(static_cast<uint32_t>(WorkerPhase::kTraining));
      worker.set_step(step);
      worker.set_collective(collective);
      worker.set_loss(2.5F);
      worker.set_tokens(1'000'000);
      worker.set_step_ns(static_cast<uint64_t>(std::chrono::nanoseconds(fleet_.step_).count()));
      worker.set_first_step_unix_ns(step > 0 ? 1 : 0);
      worker.set_open_collectives(1);
      worker.mutable_figures()->set_compute_ns(1'000'000'000 + step);
      worker.mutable_figures()->set_communication_ns(500'000'000 + step);
      worker.mutable_figures()->set_peak_memory_bytes(60'000'000'000);
    }
    send(std::move(message));
    return true;
  }

  void die_of_sigkill() {
    const std::lock_guard lock(mutex_);
    exit_worker(ranks_.front(), 0, SIGKILL, false);
  }

  void cut() {
    const std::lock_guard lock(mutex_);
    if (context_) context_->TryCancel();
  }

  bool is_welcome() {
    const std::lock_guard lock(mutex_);
    return welcomed_ && !closed_;
  }
  bool beats_seldom() {
    const std::lock_guard lock(mutex_);
    return interval_ > welcome_interval_;
  }
  bool has_started(uint64_t generation) {
    const std::lock_guard lock(mutex_);
    return started_ >= generation;
  }
  bool has_stopped(uint64_t generation) {
    const std::lock_guard lock(mutex_);
    return stopped_ >= generation;
  }

 private:
  template <typename Worker>
  void add_worker(Worker& worker, int rank) const {
    worker.set_rank(rank);
    worker.set_generation(generation_);
    worker.set_pid(kPid + static_cast<uint64_t>(rank));
  }

  void send(v1::AgentMessage message) {
    if (closed_) return;
    outbox_.push_back(std::move(message));
    if (outbox_.size() == 1) StartWrite(&outbox_.front());
  }

  void exit_worker(int rank, int code, int signal, bool by_request) {
    v1::AgentMessage message = head_;
    message.set_report_seq(++reports_);
    fill_exit(*message.mutable_worker_exited(), rank, code, signal, by_request);
    send(std::move(message));
  }

  void fill_exit(v1::WorkerExited& exited, int rank, int code, int signal, bool by_request) const {
    add_worker(exited, rank);
    exited.set_exit_code(code);
    exited.set_signal(signal);
    exited.set_by_request(by_request);
  }

  // As agents do it: the first that lost a peer at once, the others with the answer to the order.
  void leave_generation() {
    if (fleet_.one_by_one_) {
      for (const int rank : ranks_) exit_worker(rank, kExitPeerLost, 0, true);
      return;
    }
    exit_worker(ranks_.front(), kExitPeerLost, 0, false);
    v1::AgentMessage message = head_;
    v1::WorkersExited& together = *message.mutable_workers_exited();
    together.set_first_report_seq(reports_ + 1);
    for (size_t i = 1; i < ranks_.size(); ++i) {
      fill_exit(*together.add_exits(), ranks_[i], kExitPeerLost, 0, true);
    }
    reports_ += ranks_.size() - 1;
    message.set_report_seq(reports_);
    send(std::move(message));
  }

  template <typename Order>
  v1::AgentMessage done(const Order& order) const {
    v1::AgentMessage message = head_;
    v1::ActionDone& answer = *message.mutable_action_done();
    answer.set_action_seq(order.action_seq());
    answer.set_action_index(order.action_index());
    return message;
  }

  void obey(const v1::StartWorkers& order) {
    v1::AgentMessage message = done(order);
    generation_ = order.generation();
    ranks_.assign(order.ranks().begin(), order.ranks().end());
    running_ = true;
    started_ = std::max(started_, generation_);
    message.mutable_action_done()->set_generation(generation_);
    for (const int rank : ranks_) add_worker(*message.mutable_action_done()->add_workers(), rank);
    send(std::move(message));
  }

  void obey(const v1::StopWorkers& order) {
    if (running_) leave_generation();
    running_ = false;
    stopped_ = std::max(stopped_, order.generation());
    v1::AgentMessage message = done(order);
    message.mutable_action_done()->set_generation(order.generation());
    send(std::move(message));
  }

  // As agents do it: at once, or somewhen in the longer interval.
  void obey(const v1::BeatEvery& order) {
    const std::chrono::milliseconds interval(order.interval_ms());
    const bool is_longer = interval > interval_;
    interval_ = interval;
    due_ = Clock::now().time_since_epoch() +
           (is_longer ? interval_ * (ranks_.front() % 997) / 997 : std::chrono::milliseconds(0));
  }

  void OnReadDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    if (!ok) {
      close();
      return;
    }
    if (incoming_.has_welcome()) {
      welcomed_ = true;
      patience_.reset();
      interval_ = welcome_interval_ =
          std::chrono::milliseconds(incoming_.welcome().heartbeat_interval_ms());
      due_ = Clock::now().time_since_epoch();
    } else if (incoming_.has_beat_every()) {
      obey(incoming_.beat_every());
    } else if (incoming_.has_refused()) {  // it was declared lost: the node begins another life
      head_.set_boot_id(head_.boot_id() + "+");
      running_ = false;
      generation_ = reports_ = 0;
    } else if (incoming_.has_start_workers()) {
      obey(incoming_.start_workers());
    } else if (incoming_.has_stop_workers()) {
      obey(incoming_.stop_workers());
    }
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    outbox_.pop_front();
    if (!ok || closed_) outbox_.clear();
    if (!outbox_.empty()) StartWrite(&outbox_.front());
  }

  void OnDone(const grpc::Status& status) override {
    if (!status.ok()) fleet_.failed(status.error_message());
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    done_.notify_all();
  }

  void close() {
    if (std::exchange(closed_, true)) return;
    closed_at_ = Clock::now();
    if (welcomed_) ++fleet_.lost_;
    RemoveHold();
  }

  void finish() {
    std::unique_lock lock(mutex_);
    if (!context_) return;
    context_->TryCancel();
    close();
    done_.wait(lock, [this] { return is_done_; });
    outbox_.clear();
  }

  FleetAgents& fleet_;
  v1::AgentMessage head_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::unique_ptr<v1::AgentLink::Stub> stub_;
  std::optional<grpc::ClientContext> context_;
  v1::ControllerMessage incoming_;
  std::deque<v1::AgentMessage> outbox_;  // front is being written
  std::vector<int> ranks_;
  uint64_t generation_ = 0;
  uint64_t started_ = 0;
  uint64_t stopped_ = 0;
  uint64_t reports_ = 0;
  agent::Patience patience_;
  std::chrono::milliseconds welcome_interval_{100};
  std::chrono::milliseconds interval_{100};
  std::atomic<Clock::duration> due_{Clock::duration::zero()};
  bool running_ = false;
  bool welcomed_ = false;
  bool closed_ = true;
  bool is_done_ = true;
  Clock::time_point closed_at_;
};

FleetAgents::FleetAgents(std::string job_dir, JobId job, int count, std::chrono::milliseconds step,
                         const FleetManners& manners)
    : job_dir_(std::move(job_dir)), job_(job), step_(step), one_by_one_(manners.one_by_one) {
  for (int i = 0; i < count; ++i) agents_.push_back(std::make_unique<Agent>(*this, i));
  beats_of_all_ = std::thread([this] { beat(); });
  dialler_ = std::thread([this] {
    while (!ends_) {
      if (dials_) dial();
      std::this_thread::sleep_for(kDialEvery);
    }
  });
}

FleetAgents::~FleetAgents() {
  ends_ = true;
  dialler_.join();
  beats_of_all_.join();
}

void FleetAgents::dial() {
  std::optional<ControllerRecord> controller;  // of this round: real agents read it each
  for (const auto& agent : agents_) {
    if (ends_ || !agent->is_to_dial()) continue;
    if (!controller) controller = find_controller(job_dir_).value();
    const auto patience_ms = static_cast<int>(agent->patience(agents_.size()));
    auto channel = connect_as_agent(job_dir_, *controller, patience_ms);
    agent->connect(v1::AgentLink::NewStub(std::move(channel).value()));
    ++dialled_;
  }
}

// What differs from agent to agent, numbers, is left out.
void FleetAgents::failed(const std::string& why) {
  std::string kind;
  std::copy_if(why.begin(), why.end(), std::back_inserter(kind),
               [](char c) { return c < '0' || c > '9'; });
  const std::lock_guard lock(failures_mutex_);
  ++failures_[kind];
}

std::map<std::string, int> FleetAgents::take_failures() {
  const std::lock_guard lock(failures_mutex_);
  return std::exchange(failures_, {});
}

void FleetAgents::beat() {
  while (!ends_) {
    for (const auto& agent : agents_) {
      const auto now = Clock::now();
      const auto step = static_cast<uint64_t>((now - begun_) / step_);
      const auto collective = static_cast<uint64_t>((now - begun_) * kCollectivesPerStep / step_);
      if (agent->beat(now, step, collective)) ++heartbeats_;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

int FleetAgents::seldom() const {
  return static_cast<int>(std::count_if(agents_.begin(), agents_.end(),
                                        [](const auto& a) { return a->beats_seldom(); }));
}

void FleetAgents::kill_worker(int agent) {
  agents_.at(static_cast<size_t>(agent))->die_of_sigkill();
}

void FleetAgents::cut(int count) {
  std::for_each_n(agents_.begin(), count, [](const auto& agent) { agent->cut(); });
}

int FleetAgents::welcomed() const {
  return static_cast<int>(
      std::count_if(agents_.begin(), agents_.end(), [](const auto& a) { return a->is_welcome(); }));
}
int FleetAgents::started(uint64_t generation) const {
  return static_cast<int>(std::count_if(agents_.begin(), agents_.end(),
                                        [&](const auto& a) { return a->has_started(generation); }));
}
int FleetAgents::stopped(uint64_t generation) const {
  return static_cast<int>(std::count_if(agents_.begin(), agents_.end(),
                                        [&](const auto& a) { return a->has_stopped(generation); }));
}

}  // namespace hpctl::bench
