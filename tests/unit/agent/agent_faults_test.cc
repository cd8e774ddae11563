// SPDX-License-Identifier: Apache-2.0
// Faults on purpose, as the controller orders them: each is done to whom it is meant, by the real
// hpagent, and what the network loses or delays is lost or delayed.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>

#include "common/worker/injected_fault.h"
#include "tests/unit/agent/node_under_test.h"

namespace hpctl::agent {
namespace {

using test::AgentMessage;
using test::eventually;
using test::kJob;
using test::text_of;

class AgentFaults : public ::testing::Test, public test::NodeUnderTest {};

v1::ControllerMessage fault(const std::string& name, int32_t rank, uint64_t generation) {
  v1::ControllerMessage message;
  message.set_job(kJob.value);
  message.mutable_inject_fault()->set_event_seq(77);
  message.mutable_inject_fault()->set_fault(name);
  message.mutable_inject_fault()->set_rank(rank);
  message.mutable_inject_fault()->set_generation(generation);
  return message;
}

TEST_F(AgentFaults, FaultsOnPurposeAreDoneToWhomTheyAreMeant) {
  connect();
  const v1::ActionDone started = start(1, 4, {0, 1, 2}, {"hang"});
  controller_.send(fault("crash-worker", 1, 4));
  v1::WorkerExited crashed = exited();
  EXPECT_EQ(crashed.rank(), 1);
  EXPECT_EQ(crashed.signal(), SIGSEGV);
  EXPECT_FALSE(crashed.by_request()) << "it is a fault like any other";
  controller_.send(fault("stop-worker", 2, 4));
  const auto stopped = [&] {
    const std::string stat = text_of("/proc/" + std::to_string(started.workers(2).pid()) + "/stat");
    return stat.find(") T ") != std::string::npos;
  };
  EXPECT_TRUE(eventually(stopped));

  controller_.send(fault("kill-agent", -1, 4));
  registration_ = controller_.take(AgentMessage::kRegisterAgent);
  EXPECT_EQ(registration_.register_agent().workers_size(), 2) << "they are not disturbed";
  controller_.send(fault("kill-worker", 0, 4));
  EXPECT_EQ(exited().signal(), SIGKILL);

  // Who is not there, is not there in this generation, or what this release does not know.
  for (const auto& order :
       {fault("kill-worker", 0, 4), fault("kill-worker", 2, 3), fault("unplug", 2, 4)}) {
    controller_.send(order);
    const AgentMessage answer = controller_.take(AgentMessage::kFaultNotInjected);
    EXPECT_EQ(answer.fault_not_injected().event_seq(), 77U);
    EXPECT_FALSE(answer.fault_not_injected().reason().empty());
  }
  controller_.send(fault("kill-holder", -1, 4));
  EXPECT_EQ(wait_for_node_end(), 256 + SIGKILL);
}

// Of both directions, and in order.
TEST_F(AgentFaults, DelayedMessagesAreLateAndAllOfThemArrive) {
  connect();
  start(1, 4, {0}, {"hang"});
  controller_.send(fault("delay-messages", -1, 4));
  const auto ordered = std::chrono::steady_clock::now();
  controller_.send(fault("unplug", -1, 4));
  controller_.send(fault("kill-worker", 0, 4));
  controller_.take(AgentMessage::kFaultNotInjected);
  const auto late = std::chrono::steady_clock::now() - ordered;
  EXPECT_GE(late, std::chrono::milliseconds(kDelayMs)) << "the order, and the answer again";
  EXPECT_EQ(exited().signal(), SIGKILL);
  EXPECT_EQ(controller_.count(AgentMessage::kRegisterAgent), 0U) << "the stream is the same";
}

TEST_F(AgentFaults, LostMessagesAreGoneAndTheNextStreamHasTheReports) {
  connect();
  const v1::ActionDone started = start(1, 4, {0, 1}, {"hang"});
  const auto ordered = std::chrono::steady_clock::now();
  controller_.send(fault("lose-messages", -1, 4));
  controller_.send(fault("kill-worker", 1, 4));
  ASSERT_EQ(::kill(static_cast<pid_t>(started.workers(0).pid()), SIGKILL), 0);
  registration_ = controller_.take(AgentMessage::kRegisterAgent);
  EXPECT_GE(std::chrono::steady_clock::now() - ordered, std::chrono::milliseconds(kLossMs) / 2);
  const v1::WorkerExited end = exited();
  EXPECT_EQ(end.rank(), 0);
  EXPECT_EQ(end.signal(), SIGKILL);
  ASSERT_EQ(registration_.register_agent().workers_size(), 1) << "the order to kill it was lost";
  EXPECT_EQ(registration_.register_agent().workers(0).rank(), 1);
}

}  // namespace
}  // namespace hpctl::agent
