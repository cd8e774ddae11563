// SPDX-License-Identifier: Apache-2.0
// An agent whose controller does not answer: its workers train on, it starts another controller,
// and ends the node when it has been alone for too long.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <string>

#include "common/base/file.h"
#include "tests/support/promise.h"
#include "tests/unit/agent/node_under_test.h"

namespace hpctl::agent {
namespace {

using test::AgentMessage;
using test::eventually;
using test::number_after;
using test::text_of;

class AgentAlone : public ::testing::Test, public test::NodeUnderTest {};

TEST_F(AgentAlone, TrainingGoesOnWithoutControllerAndTheNextOneLearnsAll) {
  connect();
  const v1::ActionDone started = start(1, 1, {0, 1}, {"wait", marker("go"), "exit", "3"});
  controller_.stop();
  EXPECT_TRUE(write_file_atomic(marker("go"), "").ok());
  for (const v1::RunningWorker& worker : started.workers()) {
    EXPECT_TRUE(eventually([&] { return !process_runs(static_cast<pid_t>(worker.pid())); }));
  }
  controller_.start();
  registration_ = controller_.take(AgentMessage::kRegisterAgent);
  EXPECT_EQ(registration_.register_agent().generation_seen(), 1U);
  // The agent itself may hear of the two ends before or after it registers.
  EXPECT_NE(exited().rank(), exited().rank());
  controller_.stop();
  controller_.start();
  registration_ = controller_.take(AgentMessage::kRegisterAgent);
  EXPECT_EQ(registration_.register_agent().workers_size(), 0);
}

TEST_F(AgentAlone, WithoutAnyControllerTheNodeEndsAfterTheOrphanTimeout) {
  controller_.behaviour.orphan_timeout_ms = 300;
  connect();
  const v1::ActionDone started = start(1, 1, {0}, {"stray", "hang"});
  ASSERT_TRUE(eventually([&] { return number_after(log_of(0), "sleeper") > 0; }));
  const auto stray = static_cast<pid_t>(number_after(log_of(0), "sleeper"));
  controller_.stop();
  EXPECT_EQ(wait_for_node_end(), 1);
  EXPECT_FALSE(process_runs(static_cast<pid_t>(started.workers(0).pid())))
      << broken_promise("leftover");
  EXPECT_FALSE(process_runs(stray)) << broken_promise("leftover");
}

// Only the management network is away: the job trains, and twice the timeout ends nobody.
TEST_F(AgentAlone, WithoutAnyControllerANodeThatCompletesStepsGoesOnUntilTheyCease) {
  constexpr int kOrphanMs = 2'000;
  controller_.behaviour.orphan_timeout_ms = kOrphanMs;
  connect();
  const std::string steps = std::to_string(2 * kOrphanMs / 10);
  const v1::ActionDone started = start(1, 1, {0},
                                       {"map", "step", "1", "wait", marker("alone"), "train", steps,
                                        "file", marker("trained"), "hang"});
  const auto worker = static_cast<pid_t>(started.workers(0).pid());
  controller_.stop();
  EXPECT_TRUE(write_file_atomic(marker("alone"), "").ok());
  ASSERT_TRUE(
      eventually([&] { return is_accessible(marker("trained")) || !process_runs(worker); }));
  EXPECT_TRUE(is_accessible(marker("trained"))) << "ended while it trained";
  EXPECT_EQ(wait_for_node_end(), 1);
  EXPECT_FALSE(process_runs(worker)) << broken_promise("leftover");
}

// It finds out about both in the same moment: that the time is over, and that the node trained.
TEST_F(AgentAlone, StepsThatWereCompletedWhileTheAgentHadNoTurnCount) {
  constexpr int kOrphanMs = 2'000;
  controller_.behaviour.orphan_timeout_ms = kOrphanMs;
  ASSERT_TRUE(
      write_file_atomic(program("hpcontroller"), "#!/bin/sh\ntouch " + marker("alone") + "\n")
          .ok());
  ASSERT_EQ(::chmod(program("hpcontroller").c_str(), 0755), 0);
  connect();
  start(1, 1, {0},
        {"map", "step", "1", "wait", marker("stopped"), "train", std::to_string(kOrphanMs / 10 + 1),
         "file", marker("trained"), "hang"});
  controller_.stop();
  ASSERT_TRUE(eventually([&] { return is_accessible(marker("alone")); }));
  ::poll(nullptr, 0, 200);  // it has seen that the controller did not start, and waits again
  ASSERT_EQ(::kill(agent_pid(), SIGSTOP), 0);
  EXPECT_TRUE(write_file_atomic(marker("stopped"), "").ok());
  ASSERT_TRUE(eventually([&] { return is_accessible(marker("trained")); }));
  controller_.start();
  ASSERT_EQ(::kill(agent_pid(), SIGCONT), 0);
  EXPECT_EQ(controller_.take(AgentMessage::kRegisterAgent).register_agent().workers_size(), 1);
}

TEST_F(AgentAlone, StartsAControllerWhenNoneAnswers) {
  // Stands for hpcontroller: says on the ready pipe that it gave up, and leaves a trace.
  ASSERT_TRUE(write_file_atomic(program("hpcontroller"),
                                "#!/bin/sh\necho \"$@\" > " + marker("started") + "\n")
                  .ok());
  ASSERT_EQ(::chmod(program("hpcontroller").c_str(), 0755), 0);
  connect();
  controller_.stop();
  EXPECT_TRUE(eventually(
      [&] { return text_of(marker("started")).find(home_.path()) != std::string::npos; }));
  controller_.start();
  registration_ = controller_.take(AgentMessage::kRegisterAgent);
}

}  // namespace
}  // namespace hpctl::agent
