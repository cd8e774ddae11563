// SPDX-License-Identifier: Apache-2.0
// Hooks and preflight around the workers of a real node.
#include <fstream>

#include "tests/support/promise.h"
#include "tests/unit/agent/node_under_test.h"

namespace hpctl::agent {
namespace {

using test::AgentMessage;
using test::eventually;
using test::kJob;
using test::text_of;

class Preparation : public ::testing::Test, public test::NodeUnderTest {
 protected:
  v1::ControllerMessage start_with(uint64_t seq, uint64_t generation,
                                   const std::vector<std::string>& hooks,
                                   uint32_t timeout_ms = 60'000) const {
    v1::ControllerMessage message = start_workers(seq, generation, {0}, {"hang"});
    v1::Preparation& preparation = *message.mutable_start_workers()->mutable_preparation();
    preparation.mutable_hooks()->Add(hooks.begin(), hooks.end());
    preparation.set_hook_timeout_ms(timeout_ms);
    return message;
  }
  // With a root of its own, on which no devices are.
  void be_a_machine() {
    environment_ = {"HPCTL_SYSROOT=" + home_.path()};
    ASSERT_TRUE(make_directories(dmi_).ok());
    for (const char* file : {"environment.json", "instances.json"}) {
      std::filesystem::copy_file(test::product_program(file), program(file));
    }
  }
  void be_an_instance(const std::string& type) {
    ASSERT_TRUE(write_file_atomic(dmi_ + "sys_vendor", "Amazon EC2\n").ok());
    ASSERT_TRUE(write_file_atomic(dmi_ + "product_name", type + "\n").ok());
  }
  v1::ControllerMessage start_checked(uint64_t seq, bool suspect) const {
    v1::ControllerMessage message = start_with(seq, seq, {});
    v1::Preparation& preparation = *message.mutable_start_workers()->mutable_preparation();
    preparation.add_preflight("efa");
    preparation.set_suspect(suspect);
    return message;
  }
  const std::string dmi_ = home_.path() + "/sys/devices/virtual/dmi/id/";

  std::string append_to(const std::string& name, const std::string& word) const {
    return "echo " + word + " >> " + marker(name);
  }
};

TEST_F(Preparation, HooksRunOnceInOrderBeforeTheFirstWorkers) {
  connect();
  const std::vector<std::string> hooks = {append_to("told", "$HPCTL_NODE"),
                                          append_to("told", "second")};
  controller_.send(start_with(1, 1, hooks));
  EXPECT_EQ(done(1).workers_size(), 1);
  EXPECT_EQ(text_of(marker("told")), "n0\nsecond\n");
  kill_agent();
  controller_.send(start_with(2, 2, hooks));
  EXPECT_EQ(done(2).workers_size(), 1);
  EXPECT_EQ(text_of(marker("told")), "n0\nsecond\n") << "also not by the next agent";
}

// A spare is prepared while it stands by; what it did is undone at the end, ranks or not.
TEST_F(Preparation, ASparesHooksAreFollowedByThoseAfterTheJob) {
  connect();
  v1::ControllerMessage spare;
  spare.set_job(kJob.value);
  v1::StartWorkers& like = *spare.mutable_stand_by()->mutable_like();
  like = start_with(0, 1, {append_to("told", "pre")}).start_workers();
  like.clear_ranks();
  controller_.send(spare);
  const std::string files = home_.paths().socket_directory() + "/node-3-n0";
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(files + "/prepared"); }));
  v1::ControllerMessage end;
  end.set_job(kJob.value);
  end.mutable_end_node()->set_action_seq(2);
  end.mutable_end_node()->add_hooks(append_to("told", "post"));
  end.mutable_end_node()->set_hook_timeout_ms(60'000);
  controller_.send(end);
  controller_.take(AgentMessage::kGoodbye);
  EXPECT_EQ(text_of(marker("told")), "pre\npost\n");
  EXPECT_FALSE(std::filesystem::exists(files)) << broken_promise("leftover");
}

TEST_F(Preparation, AFailingHookIsAFaultOfTheNodeWithItsLastLine) {
  connect();
  controller_.send(start_with(
      1, 1, {"echo ok", "echo first; echo no luck; exit 3", append_to("told", "never")}));
  const v1::ActionFailed failure = failed(1);
  EXPECT_EQ(failure.reason(), "hooks.pre 2: exit code 3: no luck");
  EXPECT_TRUE(failure.node_fault());
  EXPECT_FALSE(failure.hardware());
  EXPECT_FALSE(is_accessible(marker("told")));
  const std::string log = home_.paths().node(kJob, "n0") + "/hooks.log";
  EXPECT_TRUE(eventually([&] { return text_of(log).find("first\n") != std::string::npos; }));
  controller_.send(start_with(2, 2, {"true"}));
  EXPECT_EQ(done(2).workers_size(), 1) << "the next order tries anew";
}

// The agent has threads by then, so it cannot fork another writer itself.
TEST_F(Preparation, HooksHaveALogAfterTheLogWriterDied) {
  connect();
  pid_t writer = -1;
  ASSERT_TRUE(eventually([&] { return (writer = log_writer_of(agent_pid())) > 0; }));
  const UniqueFd process = open_pidfd(writer);
  ASSERT_EQ(::kill(writer, SIGKILL), 0);
  ASSERT_TRUE(await_end(process));
  controller_.send(start_with(1, 1, {"echo still here"}));
  EXPECT_EQ(done(1).workers_size(), 1);
  const std::string log = home_.paths().node(kJob, "n0") + "/hooks.log";
  EXPECT_TRUE(eventually([&] { return text_of(log).find("still here") != std::string::npos; }));
}

TEST_F(Preparation, AHookPastItsDeadlineIsEndedWithAllItStarted) {
  connect();
  controller_.send(start_with(1, 1, {"sleep 1000 & echo $! > " + marker("pid") + "; wait"}, 4'000));
  EXPECT_EQ(failed(1).reason(), "hooks.pre 1: no end within 4 s");
  const std::string child = text_of(marker("pid"));
  if (child.empty()) return;  // the shell had no turn within its 4 s
  EXPECT_TRUE(eventually([&] { return !process_runs(std::stoi(child)); }))
      << broken_promise("leftover");
}

TEST_F(Preparation, AnOrderToStopDoesNotWaitForTheHooks) {
  connect();
  const std::string wait = "until test -e " + marker("go") + "; do sleep 0.01; done";
  controller_.send(start_with(1, 1, {wait}));
  controller_.send(stop_workers(2, 1, 0));
  EXPECT_EQ(failed(1).reason(), "was ended while the node was prepared");
  EXPECT_FALSE(done(2).workers_size());
  controller_.send(start_with(3, 2, {wait}));
  EXPECT_TRUE(write_file_atomic(marker("go"), "").ok());
  EXPECT_EQ(done(3).workers_size(), 1);
}

TEST_F(Preparation, AnAgentThatDiesMeanwhileBeginsAgain) {
  connect();
  const std::vector<std::string> hooks = {
      append_to("told", "began"), "until test -e " + marker("go") + "; do sleep 0.01; done"};
  controller_.send(start_with(1, 1, hooks));
  ASSERT_TRUE(eventually([&] { return text_of(marker("told")) == "began\n"; }));
  kill_agent();
  controller_.send(start_with(1, 1, hooks));
  ASSERT_TRUE(eventually([&] { return text_of(marker("told")) == "began\nbegan\n"; }));
  EXPECT_TRUE(write_file_atomic(marker("go"), "").ok());
  EXPECT_EQ(done(1).workers_size(), 1);
}

TEST_F(Preparation, PostHooksRunAfterTheLastWorkerAndOnlyWarn) {
  connect();
  controller_.send(start_with(1, 1, {"true"}));
  const auto worker = static_cast<pid_t>(done(1).workers(0).pid());
  v1::ControllerMessage end;
  end.set_job(kJob.value);
  v1::EndNode& order = *end.mutable_end_node();
  order.set_action_seq(2);
  order.add_hooks("test -d /proc/" + std::to_string(worker) + " && echo early >> " +
                  marker("told") + "; echo broken; exit 1");
  order.add_hooks(append_to("told", "post"));
  order.set_hook_timeout_ms(60'000);
  controller_.send(end);
  controller_.take(AgentMessage::kGoodbye);
  EXPECT_EQ(text_of(marker("told")), "post\n");
  EXPECT_EQ(wait_for_node_end(), 0);
}

TEST_F(Preparation, WithoutWorkersNothingIsCleanedUp) {
  connect();
  v1::ControllerMessage end;
  end.set_job(kJob.value);
  end.mutable_end_node()->set_action_seq(2);
  end.mutable_end_node()->add_hooks(append_to("told", "post"));
  controller_.send(end);
  controller_.take(AgentMessage::kGoodbye);
  EXPECT_FALSE(is_accessible(marker("told"))) << "nothing of the job ever ran here";
  EXPECT_EQ(wait_for_node_end(), 0);
}

TEST_F(Preparation, PreflightRefusesAnUnfitNode) {
  be_a_machine();
  be_an_instance("p5.48xlarge");
  connect();
  EXPECT_EQ(registration_.register_agent().capabilities().at("instance_type"), "p5.48xlarge");
  controller_.send(start_checked(1, false));
  const v1::ActionFailed failure = failed(1);
  EXPECT_TRUE(failure.node_fault());
  EXPECT_TRUE(failure.hardware());
  EXPECT_TRUE(failure.reboot()) << "devices that are missing";
  EXPECT_NE(
      failure.reason().find("efa.devices: 0 of 32 EFA devices of an instance p5.48xlarge found"),
      std::string::npos)
      << failure.reason();
  // Without the check it starts, and its workers are told what the machine calls for.
  controller_.send(start_with(2, 2, {}));
  const auto pid = done(2).workers(0).pid();
  EXPECT_NE(text_of("/proc/" + std::to_string(pid) + "/environ").find("FI_EFA_USE_HUGE_PAGE=0"),
            std::string::npos);
}

TEST_F(Preparation, WhereAWorkerFailedTheChecksAreMadeAgain) {
  be_a_machine();
  connect();
  controller_.send(start_checked(1, false));
  EXPECT_EQ(done(1).workers_size(), 1);
  be_an_instance("p5.48xlarge");  // which has devices that are not here
  controller_.send(start_checked(2, false));
  EXPECT_EQ(done(2).workers_size(), 1) << "not without suspicion";
  controller_.send(start_checked(3, true));
  EXPECT_TRUE(failed(3).hardware());
  controller_.send(start_checked(4, false));
  EXPECT_TRUE(failed(4).hardware()) << "what has failed once is not taken as done";
  be_an_instance("m5.large");
  controller_.send(start_checked(5, true));
  EXPECT_EQ(done(5).workers_size(), 1);
}

}  // namespace
}  // namespace hpctl::agent
