// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/idle_agents.h"

#include <fcntl.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "common/base/check.h"
#include "common/process/descriptor_limit.h"
#include "common/rpc/controller_process.h"
#include "controller/access/local_listener.h"
#include "controller/agents/agent_link.h"
#include "controller/schedulers/local/local_scheduler.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::bench {
namespace {

constexpr int kWorkersPerNode = 8;
constexpr int kHeartbeatMs = core::kBeatMs;
constexpr auto kConnectTimeout = std::chrono::seconds(60);

v1::AgentMessage message_of(int index) {
  v1::AgentMessage message;
  message.set_job(1);
  message.set_node("n" + std::to_string(index));
  message.set_boot_id("boot-" + std::to_string(index));
  return message;
}

// One agent: registers, then sends a heartbeat whenever beat() is called and the last has left.
class IdleAgent final : public grpc::ClientBidiReactor<v1::AgentMessage, v1::ControllerMessage> {
 public:
  IdleAgent(const HomePaths& paths, int index)
      : stub_(v1::AgentLink::NewStub(connect_controller(paths))), message_(message_of(index)) {
    message_.mutable_register_agent()->set_holder_pid(static_cast<uint64_t>(::getppid()));
    message_.mutable_register_agent()->set_agent_pid(static_cast<uint64_t>(::getpid()));
    context_.set_wait_for_ready(true);
    stub_->async()->Connect(&context_, this);
    StartWrite(&message_);
    StartRead(&incoming_);
    StartCall();
  }
  void beat() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_) return;
    idle_ = false;
    message_.clear_register_agent();
    v1::Heartbeat& heartbeat = *message_.mutable_heartbeat();
    heartbeat.Clear();
    for (int i = 0; i < kWorkersPerNode; ++i) {
      v1::WorkerProgress& worker = *heartbeat.add_workers();
      worker.set_rank(i);
      worker.set_generation(1);
      worker.set_pid(1'000'000);
      worker.set_step(++steps_);
      worker.set_step_ns(1'000'000'000);
    }
    StartWrite(&message_);
  }

 private:
  void OnWriteDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_ = ok;
  }
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&incoming_);
  }

  std::unique_ptr<v1::AgentLink::Stub> stub_;
  grpc::ClientContext context_;
  v1::AgentMessage message_;
  v1::ControllerMessage incoming_;
  std::mutex mutex_;
  bool idle_ = false;
  uint64_t steps_ = 0;
};

[[noreturn]] void run_agents(const std::string& home, int count, int control) {
  raise_descriptor_limit();
  std::vector<std::unique_ptr<IdleAgent>> agents;  // their calls go on until the process ends
  char byte = 0;
  if (::read(control, &byte, 1) == 1) {
    for (int i = 0; i < count; ++i) {
      agents.push_back(std::make_unique<IdleAgent>(HomePaths(home), i));
    }
    pollfd end{control, POLLIN, 0};
    while (::poll(&end, 1, kHeartbeatMs) == 0) {
      for (const auto& agent : agents) agent->beat();
    }
  }
  ::_exit(0);  // the streams break, as when a cluster loses power
}

}  // namespace

IdleAgents::IdleAgents(const std::string& home, int agents) {
  std::array<int, 2> pipe_fds{};
  HP_CHECK(::pipe2(pipe_fds.data(), O_CLOEXEC) == 0);
  child_ = ::fork();
  HP_CHECK(child_ >= 0);
  if (child_ == 0) {
    ::close(pipe_fds[1]);
    run_agents(home, agents, pipe_fds[0]);
  }
  ::close(pipe_fds[0]);
  control_ = UniqueFd(pipe_fds[1]);
}

IdleAgents::~IdleAgents() {
  control_.reset();
  ::waitpid(child_, nullptr, 0);
}

void IdleAgents::go() { HP_CHECK(::write(control_.get(), "g", 1) == 1); }

struct AgentServer::Parts final : OwnerEffects {
  Parts(const std::string& home, int count)
      : paths(home),
        agents(count),
        scheduler(paths, "", [](JobId, const Scheduler::MakeEvent&) {}) {}

  void committed(const Committed& batch) override {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const core::NodeKey& key : batch.dirty.nodes) {
      if (batch.state.nodes.at(key).connected) connected.insert(key);
    }
    changed.notify_all();
  }
  // Nothing is launched; the last open action, to look for a checkpoint, stays open.
  void perform(const core::Action&, const core::State&) override {}
  std::vector<core::EventBody> sweep(int64_t now_ms) override {
    std::vector<core::EventBody> events;
    const auto sight = [&](JobId job, const std::set<std::string>& silent) {
      return progress.sight(job, silent, now_ms);
    };
    for (core::NodeLost& lost : liveness.judge(now_ms, sight).lost) events.emplace_back(lost);
    return events;
  }
  void stalled(int64_t now_ms) override { liveness.rearm(now_ms); }

  const HomePaths paths;
  const int agents;
  SystemClock clock;
  RendezvousPorts ports;
  Liveness liveness;
  ProgressTable progress;
  LocalScheduler scheduler;
  Authenticator authenticator{{}, 0};
  const Gate gate{authenticator};
  std::mutex mutex;
  std::condition_variable changed;
  std::set<core::NodeKey> connected;
  std::unique_ptr<OwnerLoop> loop;
  std::unique_ptr<AgentLink> link;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<LocalListener> listener;
};

AgentServer::AgentServer(const std::string& home, int agents)
    : parts_(std::make_unique<Parts>(home, agents)) {
  raise_descriptor_limit();
  Parts& parts = *parts_;
  auto store = Store::open(parts.paths.database(), Store::Mode::kOwner);
  HP_CHECK(store.ok());
  parts.loop = std::make_unique<OwnerLoop>(std::move(*store), core::State{}, parts.clock, parts);
  parts.link = std::make_unique<AgentLink>(
      parts.paths, parts.gate, *parts.loop, parts.liveness, parts.progress, parts.scheduler,
      parts.ports, [](const std::string&, const std::string&) { return false; });
  grpc::ServerBuilder builder;
  builder.RegisterService(parts.link.get());
  parts.server = builder.BuildAndStart();
  parts.loop->start();
  JobSpec spec = core::small_job("bench");
  spec.nodes = agents;
  spec.workers_per_node = kWorkersPerNode;
  spec.train->batch.global = spec.world_size();
  parts.loop->post(core::JobSubmitted{spec, ::geteuid(), "bench"});
  HP_CHECK(prepare_socket_directory(parts.paths).ok());
  auto listener = LocalListener::open(
      parts.paths.controller_socket(), [&parts] { return prepare_socket_directory(parts.paths); },
      [&parts](UniqueFd connection, uid_t uid) {
        parts.authenticator.local().remember(connection.get(), uid);
        grpc::AddInsecureChannelFromFd(parts.server.get(), connection.release());
      },
      [](uid_t, pid_t) {});
  HP_CHECK(listener.ok());
  parts.listener = std::move(*listener);
}

AgentServer::~AgentServer() {
  parts_->listener->stop();
  parts_->link->close_all();
  parts_->scheduler.stop();
  parts_->loop->stop();
  parts_->server->Shutdown(std::chrono::system_clock::now());
  parts_->server->Wait();
}

void AgentServer::wait_until_connected() {
  std::unique_lock<std::mutex> lock(parts_->mutex);
  HP_CHECK(parts_->changed.wait_for(lock, kConnectTimeout, [this] {
    return parts_->connected.size() == static_cast<size_t>(parts_->agents);
  }));
}

uint64_t AgentServer::heartbeats() const { return parts_->link->heartbeats(); }

}  // namespace hpctl::bench
