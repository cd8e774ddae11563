// SPDX-License-Identifier: Apache-2.0
// A node for tests and benchmarks of the agent: a real hpagent in a home of its own, with real
// workers, and a scripted controller. Ends everything it started, whatever happened.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agent/holder/spawn.h"
#include "common/worker/workload.h"
#include "tests/support/promise.h"
#include "tests/unit/agent/node_fixture.h"
#include "tests/unit/agent/scripted_controller.h"

namespace hpctl::test {

using v1::AgentMessage;

inline constexpr JobId kJob{3};

class NodeUnderTest {
 public:
  NodeUnderTest() : controller_(home_.paths()) {
    EXPECT_TRUE(prepare_socket_directory(home_.paths()).ok());
    // In a directory of its own: no hpcontroller beside it, which it would start when orphaned.
    std::filesystem::create_directory(home_.path() + "/bin");
    std::filesystem::copy_file(product_program("hpagent"), program("hpagent"));
  }
  ~NodeUnderTest() {
    if (holder_.pid > 0) {
      ::kill(holder_.pid, SIGKILL);
      ::waitpid(holder_.pid, nullptr, 0);
    }
    controller_.stop();
    // The reaper gives the lock back when nothing of the node is left.
    EXPECT_TRUE(eventually([&] { return lock_file(home_.paths().node_lock(kJob, "n0")).ok(); }))
        << broken_promise("leftover");
    std::filesystem::remove_all(home_.paths().socket_directory());
  }

  std::string program(const std::string& name) const { return home_.path() + "/bin/" + name; }

  void start_node() {
    ASSERT_TRUE(make_directories(home_.paths().node(kJob, "n0")).ok());
    SpawnPlan plan;
    plan.program = program("hpagent");
    plan.argv = {
        plan.program, "--holder", "--home", home_.path(), "--job",
        "3",          "--node",   "n0",     "--socket",   home_.paths().controller_socket()};
    if (!alive_limit_ms_.empty()) {
      plan.argv.insert(plan.argv.end(), {"--alive-limit", alive_limit_ms_});
    }
    plan.env = environment_with(environment_);
    plan.descriptors = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO};
    auto spawned = spawn_process(plan);
    ASSERT_TRUE(spawned.ok()) << spawned.error().message;
    holder_ = std::move(*spawned);
  }
  // Starts both sides and waits until they know each other.
  void connect() {
    controller_.start();
    start_node();
    registration_ = controller_.take(AgentMessage::kRegisterAgent);
  }
  int wait_for_node_end() {
    int status = -1;
    if (!eventually([&] { return ::waitpid(holder_.pid, &status, WNOHANG) == holder_.pid; })) {
      return -1;
    }
    holder_ = SpawnedProcess();
    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  pid_t agent_pid() const { return static_cast<pid_t>(registration_.register_agent().agent_pid()); }
  // Ends the agent proper and waits for the next one.
  void kill_agent() {
    ASSERT_GT(agent_pid(), 0);
    ::kill(agent_pid(), SIGKILL);
    registration_ = controller_.take(AgentMessage::kRegisterAgent);
  }

  v1::ControllerMessage start_workers(uint64_t seq, uint64_t generation, std::vector<int> ranks,
                                      std::vector<std::string> script) const {
    v1::ControllerMessage message;
    message.set_job(kJob.value);
    v1::StartWorkers& start = *message.mutable_start_workers();
    start.set_action_seq(seq);
    start.set_generation(generation);
    for (const int rank : ranks) start.add_ranks(rank);
    start.set_world_size(4);
    Workload workload;
    workload.generation = generation;
    start.set_workload_json(to_json_text(workload));
    start.set_log_dir(home_.paths().job_logs(kJob));
    start.add_command(test_program("probe_worker"));
    for (const std::string& word : script) start.add_command(word);
    return message;
  }
  v1::ControllerMessage stop_workers(uint64_t seq, uint64_t generation, uint32_t grace_ms) const {
    v1::ControllerMessage message;
    message.set_job(kJob.value);
    message.mutable_stop_workers()->set_action_seq(seq);
    message.mutable_stop_workers()->set_generation(generation);
    message.mutable_stop_workers()->set_grace_ms(grace_ms);
    return message;
  }
  v1::ActionDone done(uint64_t seq) {
    return controller_
        .take([seq](const AgentMessage& message) {
          return message.has_action_done() && message.action_done().action_seq() == seq;
        })
        .action_done();
  }
  v1::ActionFailed failed(uint64_t seq) {
    return controller_
        .take([seq](const AgentMessage& message) {
          return message.has_action_failed() && message.action_failed().action_seq() == seq;
        })
        .action_failed();
  }
  v1::ActionDone start(uint64_t seq, uint64_t generation, std::vector<int> ranks,
                       std::vector<std::string> script) {
    controller_.send(start_workers(seq, generation, std::move(ranks), std::move(script)));
    return done(seq);
  }
  v1::WorkerExited exited() {
    return controller_.take(AgentMessage::kWorkerExited).worker_exited();
  }
  std::string log_of(int rank) const { return text_of(home_.paths().rank_log(kJob, Rank{rank})); }
  std::string marker(const std::string& name) const { return home_.path() + "/" + name; }

  TemporaryHome home_;
  ScriptedController controller_;
  std::vector<std::string> environment_;
  // An agent that had no turn on a busy machine is not to be replaced; "" = as it is elsewhere.
  std::string alive_limit_ms_ = "60000";
  SpawnedProcess holder_;
  AgentMessage registration_;
};

}  // namespace hpctl::test
