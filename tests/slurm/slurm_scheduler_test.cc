// SPDX-License-Identifier: Apache-2.0
// The backend of a Slurm job against a real Slurm, with a shell script for the agent: relaunch by
// srun, also while slurmctld is away; what Slurm takes away is lost; an allocation that nobody is
// left to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <mutex>
#include <optional>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "controller/schedulers/slurm/node_replacement.h"
#include "controller/schedulers/slurm/slurm_scheduler.h"
#include "tests/slurm/slurm_cluster.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using test::await;
using test::run_command;
using test::SlurmCluster;
using testing::HasSubstr;

class SchedulerOnSlurm : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = std::make_unique<SlurmCluster>("--nodes 3 --netns --slurmd-timeout 8");
  }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override {
    if (cluster_->code() == SlurmCluster::kCannotRun) {
      GTEST_SKIP() << "this machine cannot run a Slurm cluster (see above)";
    }
    ASSERT_EQ(cluster_->code(), 0);
    ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
    agent_ = directory_ / "hpagent";
    // --holder --job-dir DIR --job N --node NODE
    write_script(agent_, "echo $7 on $SLURMD_NODENAME step $SLURM_STEP_ID >> " +
                             (directory_ / "agents") + "; exec sleep 600");
    submit();
  }
  void TearDown() override {
    if (scheduler_) scheduler_->stop();
    if (job_ == JobId{}) return;
    EXPECT_TRUE(slurm_->cancel(job_).ok());
    SlurmCluster::must("heal n1");
    run_command("scontrol update nodename=n[1-3] state=resume 2>/dev/null");
    const auto idle = [] {
      return run_command("sinfo -hN -p main -o %t").out == "idle\nidle\nidle\n";
    };
    EXPECT_TRUE(await(idle, 60)) << run_command("sinfo -N; squeue").out;
  }

  static void write_script(const std::string& path, const std::string& commands) {
    ASSERT_TRUE(write_file_atomic(path, "#!/bin/sh\n" + commands + "\n").ok());
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  static SlurmClientOptions client_options() {
    SlurmClientOptions options;
    options.program = std::string(std::getenv("HPCTL_BIN")) + "/hpslurm";
    options.call_deadline_ms = 12'000;
    return options;
  }
  void submit() {
    SlurmSubmission batch;
    batch.script = "#!/bin/sh\necho runs\nsleep 600\n";
    batch.name = "scheduler-test";
    batch.comment = "hpctl:" + directory_.path();
    batch.work_dir = directory_.path();
    batch.output = directory_ / "out.log";
    batch.environment = {"PATH=/usr/bin:/bin"};
    batch.nodes_min = 3;
    slurm_ = std::make_unique<SlurmClient>(client_options());
    const auto job = slurm_->submit(batch);
    ASSERT_TRUE(job.ok()) << job.error().message;
    job_ = *job;
    ASSERT_TRUE(await([&] { return read_file(batch.output).ok(); })) << "the batch script runs";
    for (const char* name : {"n1", "n2", "n3"}) {
      core::Node node;
      node.key = {job_, name};
      node.state = core::NodeState::kUp;
      node.boot_id = "boot-" + std::string(name);
      state_.nodes[node.key] = node;
    }
  }
  // Marking a node DOWN would not do: its slurmd lives, and reports the end of the script.
  void lose_batch_node() {
    ASSERT_EQ(slurm_->job(job_)->batch_host, "n1");
    SlurmCluster::must("kill n1");
    ASSERT_TRUE(await([&] { return slurm_->job(job_)->nodes.size() == 2; }, 60));
    ASSERT_EQ(slurm_->job(job_)->state, "RUNNING");
  }
  void start(bool bulk_started, const std::string& hpslurm = client_options().program) {
    ASSERT_TRUE(make_directories(HomePaths(directory_.path()).job(job_)).ok());
    SlurmSchedulerSettings settings;
    settings.job = job_;
    settings.agent_program = agent_;
    settings.bulk_started = bulk_started;
    settings.slurm = client_options();
    settings.slurm.program = hpslurm;
    settings.poll_ms = poll_ms_;
    settings.requeued = [this] { requeued_ = true; };
    scheduler_ = std::make_unique<SlurmScheduler>(
        HomePaths(directory_.path()), settings, [this](JobId, const Scheduler::MakeEvent& make) {
          const std::lock_guard<std::mutex> lock(mutex_);
          const auto event = make(state_);
          if (!event) return;
          if (const auto* lost = std::get_if<core::NodeLost>(&*event)) lost_.push_back(*lost);
          if (std::holds_alternative<core::SchedulerObserved>(*event)) observed_ = true;
        });
    scheduler_->resume(core::State{});
  }
  void launch(const std::string& node, uint64_t seq) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      state_.nodes.at({job_, node}).state = core::NodeState::kLaunching;
    }
    const auto answer = scheduler_->launch({Seq{seq}, 0}, {job_, node});
    ASSERT_TRUE(std::holds_alternative<core::NodeLaunched>(answer));
  }
  std::string agents() const {
    const auto text = read_file(directory_ / "agents");
    return text.ok() ? *text : "";
  }
  std::optional<core::NodeLost> lost(const std::string& node) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const core::NodeLost& event : lost_) {
      if (event.node == node) return event;
    }
    return std::nullopt;
  }

  inline static std::unique_ptr<SlurmCluster> cluster_;
  TemporaryDirectory directory_;
  std::string agent_;
  std::unique_ptr<SlurmClient> slurm_;
  JobId job_;
  std::mutex mutex_;
  core::State state_;
  std::vector<core::NodeLost> lost_;
  bool observed_ = false;              // the poll has found something to tell
  std::atomic<bool> requeued_{false};  // it has told the end of this life of the job
  int64_t poll_ms_ = 200;
  std::unique_ptr<SlurmScheduler> scheduler_;  // last: its threads use the above
};

TEST_F(SchedulerOnSlurm, TheFirstLaunchIsTheBatchScriptsAndTheSecondAnSrun) {
  start(true);
  launch("n2", 1);
  launch("n2", 1);  // after a restart of the owner loop
  launch("n2", 2);
  ASSERT_TRUE(await([&] { return !agents().empty(); }));
  EXPECT_THAT(agents(), HasSubstr("n2 on n2 step 0\n")) << "one step, on that node";
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_.nodes.at({job_, "n2"}).state = core::NodeState::kUp;
  }
  scheduler_->registered({job_, "n2"}, 0);
  ASSERT_EQ(run_command("scancel " + to_string(job_) + ".0").code, 0);
  ASSERT_TRUE(await([&] { return lost("n2").has_value(); }));
  EXPECT_EQ(lost("n2")->boot_id, "boot-n2");
  EXPECT_THAT(lost("n2")->cause, HasSubstr("srun"));
}

TEST_F(SchedulerOnSlurm, ARelaunchWaitsForSlurmctld) {
  start(false);
  // slurmctld saves a few seconds after a change; killed before that, it would not know the job.
  const auto saved = [] {
    return run_command("stat -c %y $HPCTL_TEST_CLUSTER/state/job_state 2>/dev/null").out;
  };
  const std::string before = saved();
  ASSERT_EQ(run_command("scontrol update jobid=" + to_string(job_) + " nice=1").code, 0);
  ASSERT_TRUE(await([&] { return saved() != before; }));
  SlurmCluster::must("stop slurmctld");
  launch("n3", 1);
  ASSERT_TRUE(await(
      [&] { return run_command("pgrep -f '[s]run --jobid=" + to_string(job_) + "'").code == 0; }));
  SlurmCluster::must("start slurmctld");
  ASSERT_TRUE(await([&] { return !agents().empty(); }, 60))
      << (lost("n3") ? lost("n3")->cause : "");
  EXPECT_THAT(agents(), HasSubstr("n3 on n3"));
  EXPECT_FALSE(lost("n3").has_value()) << lost("n3")->cause;
}

TEST_F(SchedulerOnSlurm, WhatSlurmTakesAwayIsLostAndCannotBeLaunched) {
  ASSERT_TRUE(slurm_->update_node("n2", SlurmNodeState::kDrain, "for the poll to see").ok());
  start(false);
  const auto polled = [&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return observed_;
  };
  ASSERT_TRUE(await(polled));
  ASSERT_TRUE(slurm_->update_node("n3", SlurmNodeState::kDown, "test").ok());
  ASSERT_TRUE(await([&] { return lost("n3").has_value(); }));
  EXPECT_EQ(lost("n3")->cause, "Slurm took it out of the allocation: DOWN (test)");
  EXPECT_EQ(slurm_->job(job_)->state, "RUNNING");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_.clear();
  }
  launch("n3", 1);
  ASSERT_TRUE(await([&] { return lost("n3").has_value(); }));
  EXPECT_THAT(lost("n3")->cause, HasSubstr("srun: error:"));
}

// It refuses steps at once, long before a look in turn.
TEST_F(SchedulerOnSlurm, ALaunchThatARequeueRefusesLosesNoNode) {
  poll_ms_ = 60'000;
  start(false);
  ASSERT_EQ(run_command("scontrol requeue " + to_string(job_)).code, 0);
  launch("n3", 1);
  ASSERT_TRUE(await([&] { return requeued_.load() || lost("n3").has_value(); }));
  scheduler_->stop();
  EXPECT_TRUE(requeued_);
  EXPECT_FALSE(lost("n3").has_value()) << lost("n3")->cause;
  const auto again = slurm_->requeue(job_, 0, {"n3"});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kFailedPrecondition) << again.error().message;
  EXPECT_THAT(slurm_->job(job_)->excluded_nodes, testing::IsEmpty());
}

// The node of the batch script is gone for good, the job runs on without anybody to end it.
TEST_F(SchedulerOnSlurm, AnAllocationWithoutABatchScriptIsEnded) {
  start(false);
  lose_batch_node();
  scheduler_->complete(0);
  ASSERT_TRUE(await([&] { return slurm_->job(job_)->state == "COMPLETED"; }))
      << slurm_->job(job_)->state;
}

TEST_F(SchedulerOnSlurm, AVerdictOfFailureIsTheJobsExitCode) {
  start(false);
  lose_batch_node();
  scheduler_->complete(93);
  ASSERT_TRUE(await([&] { return slurm_->job(job_)->state == "FAILED"; }))
      << slurm_->job(job_)->state;
  EXPECT_EQ(slurm_->job(job_)->exit_code, 93);
}

TEST_F(SchedulerOnSlurm, AReplacementIsAskedForOnce) {
  const auto reason = [&] { return slurm_->nodes({"n2"})->front().reason; };
  const auto too_early = request_recovery(*slurm_, "n2", {}, true);
  ASSERT_FALSE(too_early.ok());
  EXPECT_EQ(too_early.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(reason(), "");
  const auto asked = request_recovery(*slurm_, "n2", {}, false);
  ASSERT_TRUE(asked.ok()) << asked.error().message;
  EXPECT_EQ(*asked, ReplacementStep::kAsk);
  EXPECT_EQ(reason(), "Action:Replace");
  const auto again = request_recovery(*slurm_, "n2", {true, "", 0}, false);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, ReplacementStep::kStandBack);
  EXPECT_EQ(reason(), "Action:Replace") << "whoever asked first is left alone";
}

TEST_F(SchedulerOnSlurm, AnAdministratorsDrainStays) {
  ASSERT_EQ(run_command("scontrol update nodename=n2 state=drain reason='ticket 7'").code, 0);
  const auto refused = request_recovery(*slurm_, "n2", {}, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("\"ticket 7\""));
  EXPECT_THAT(
      refused.error().message,
      HasSubstr("run: sudo scontrol update nodename=n2 state=FAIL reason=\"Action:Replace\""));
  EXPECT_EQ(slurm_->nodes({"n2"})->front().reason, "ticket 7");
}

TEST_F(SchedulerOnSlurm, ARebootIsAskedForOnceAndNotAfterOne) {
  const SlurmNode node = slurm_->nodes({"n2"})->front();
  ASSERT_GT(node.boot_time_s, 0);
  const RecoveryOrder of_before{true, "", (node.boot_time_s - 1) * 1000};
  const auto done = request_recovery(*slurm_, "n2", of_before, false);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(*done, ReplacementStep::kRebooted);
  EXPECT_EQ(slurm_->nodes({"n2"})->front().reason, "");
  const RecoveryOrder of_now{true, "", SystemClock().wall_ms()};
  const auto asked = request_recovery(*slurm_, "n2", of_now, false);
  ASSERT_TRUE(asked.ok()) << asked.error().message;
  EXPECT_EQ(*asked, ReplacementStep::kAsk);
  EXPECT_EQ(slurm_->nodes({"n2"})->front().reason, "Action:Reboot");
}

// As a user who is no Slurm operator.
TEST_F(SchedulerOnSlurm, WithoutTheRightToReplaceTheOperatorsCommandIsSaid) {
  const std::string program = directory_ / "hpslurm";
  ASSERT_EQ(run_command("cp " + client_options().program + " " + program).code, 0);
  const std::string as_nobody = directory_ / "hpslurm-as-nobody";
  write_script(as_nobody, "exec setpriv --reuid=65534 --regid=65534 --clear-groups " + program);
  start(false, as_nobody);
  const auto answer = scheduler_->replace({Seq{9}, 0}, {job_, "n2", "i-1", "broken", false});
  const auto* failed = std::get_if<core::ActionFailed>(&answer);
  ASSERT_NE(failed, nullptr);
  EXPECT_THAT(failed->reason, HasSubstr("ask one to run: sudo scontrol update nodename=n2 "
                                        "state=FAIL reason=\"Action:Replace\""));
  EXPECT_EQ(slurm_->nodes({"n2"})->front().reason, "");
}

}  // namespace
}  // namespace hpctl
