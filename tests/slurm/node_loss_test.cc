// SPDX-License-Identifier: Apache-2.0
// Lost nodes on a real Slurm: a spare takes over, also for one that Slurm drains; a node that was
// cut off comes back; and the batch node is lost both ways.
#include <gtest/gtest.h>
#include <poll.h>

#include "common/base/file.h"
#include "common/process/pidfd.h"
#include "tests/slurm/slurm_test.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

using NodeLoss = SlurmTest;

TEST_F(NodeLoss, SpareTakesTheRanksAtOnce) {
  const SlurmJob spec{.nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  cluster("kill", victim);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "FINISHED");
  cluster("heal",
          victim);  // else Slurm keeps the job for the dead node's sake, up to SlurmdTimeout
  expect_exact_finish(job, spec);
  const json after = status(job);
  EXPECT_EQ(after["generation"], 2) << causes(job, "JobRecovering");
  EXPECT_NE(node_of(after, victim)["role"], "active") << after;
}

// Each of its two ranks tells a step when the other has come to it, too. hpctl sees nothing of
// their waiting but that the steps end.
TEST_F(NodeLoss, ACommandsDeadNodeIsFoundByAnOverdueStep) {
  if (!has_network_namespaces()) GTEST_SKIP() << "no network namespaces: the machine would answer";
  const std::string meeting = home_.directory() + "/meeting";
  ASSERT_TRUE(make_directories(meeting).ok());
  const JobId job = start_command(
      "name: command\nnodes: {count: 2, spares: 1}\nworkers_per_node: 1\n"
      "slurm: {partition: main, exclusive: true}\nrecovery: {heartbeat_timeout: 10m}\n"
      "workload: {command: [sh, -c, 'cd " +
          meeting +
          "; i=1; until [ -e finish ]; do echo $i > $HPCTL_GENERATION.$RANK; "
          "until [ -e finish ] || "
          "[ \"$(cat $HPCTL_GENERATION.$((1 - RANK)) 2>&1)\" -ge $i ] 2>/dev/null; "
          "do sleep 0.05; done; "
          "echo $i >> $HPCTL_PROGRESS_FILE; i=$((i + 1)); sleep 0.1; done']}\n",
      20);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  cluster("kill", victim);
  const auto goes_on = [&] {
    const json now = status(job);
    return now["generation"].get<int>() >= 2 && now["step"].get<int>() > 0;
  };
  EXPECT_TRUE(wait_until(home_.directory(), goes_on, kPatience)) << diagnosis(job);
  const std::string cause = causes(job, "NodeLost");
  RecordProperty("cause", cause);
  EXPECT_NE(cause.find("the other ranks have completed no step for"), std::string::npos) << cause;
  ASSERT_TRUE(write_file_atomic(meeting + "/finish", "").ok());
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "FINISHED");
  cluster("heal", victim);
}

// Nothing is lost by it: the workers save first. Slurm lets the job have the node for as long as it
// runs, so it stays in the allocation, without ranks.
TEST_F(NodeLoss, ANodeThatSlurmDrainsIsLeftForASpare) {
  const SlurmJob spec{.nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  const std::string name = "nodename=" + victim;
  {
    const HeldTraining held = hold(job);
    ASSERT_EQ(slurm({"scontrol", "update", name, "state=drain", "reason=fan"}).exit_code, 0);
    const auto is_told = [&] { return causes(job, "StopWorkers") != ""; };
    ASSERT_TRUE(wait_until(home_.directory(), is_told, kPatience)) << diagnosis(job);
  }
  expect_exact_finish(job, spec);
  EXPECT_EQ(slurm({"scontrol", "update", name, "state=resume"}).exit_code, 0);
  const json after = status(job);
  EXPECT_EQ(after["generation"], 2) << causes(job, "JobRecovering");
  EXPECT_NE(node_of(after, victim)["role"], "active") << after;
  EXPECT_NE(causes(job, "StopWorkers").find("save and end"), std::string::npos);
  EXPECT_NE(causes(job, "NodeQuarantined").find("fan"), std::string::npos);
}

// Its workers were ended at once, the node counted as lost, and its machine got points.
TEST_F(NodeLoss, SigtermToOneHolderIsADeparture) {
  const SlurmJob spec{.nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  {
    const HeldTraining held = hold(job);
    ASSERT_EQ(::kill(node_of(status(job), victim)["holder_pid"].get<pid_t>(), SIGTERM), 0);
    const auto is_told = [&] { return causes(job, "StopWorkers") != ""; };
    ASSERT_TRUE(wait_until(home_.directory(), is_told, kPatience)) << diagnosis(job);
  }
  expect_exact_finish(job, spec);
  const json after = status(job);
  EXPECT_EQ(after["generation"], 2) << causes(job, "JobRecovering");
  EXPECT_NE(causes(job, "NodeDeparts").find(victim + " was told to end (signal 15)"),
            std::string::npos);
  EXPECT_NE(causes(job, "StopWorkers").find("save and end"), std::string::npos);
  const auto lemons = home_.hpctl({"nodes", "lemons", "--json"});
  EXPECT_EQ(json::parse(lemons.out, nullptr, false)["nodes"], json::array()) << lemons.out;
}

TEST_F(NodeLoss, CutAndHealedNodeNeverContinuesTheOldGeneration) {
  if (!has_network_namespaces()) GTEST_SKIP() << "no network namespaces here: nothing to cut";
  const SlurmJob spec{.nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  std::vector<UniqueFd> old_workers;
  for (const json& worker : workers_on(status(job), victim)) {
    old_workers.push_back(open_pidfd(worker["pid"].get<pid_t>()));
  }
  ASSERT_EQ(old_workers.size(), 2U);
  cluster("cut", victim);
  const auto moved_on = [&] {
    const json now = status(job);
    return now["generation"].get<int>() >= 2 && now["state"] == "RUNNING";
  };
  ASSERT_TRUE(wait_until(home_.directory(), moved_on, kPatience));
  {
    const HeldTraining held = hold(job);
    // Not an awaited event but the fault itself: the node is away for 30 s.
    wait_until(
        home_.directory(), [] { return false; }, seconds(30));
    cluster("heal", victim);
    for (const UniqueFd& worker : old_workers) {
      pollfd ended{worker.get(), POLLIN, 0};
      EXPECT_EQ(::poll(&ended, 1, static_cast<int>(milliseconds(kPatience).count())), 1)
          << "a worker of the old generation runs on";
    }
    EXPECT_EQ(status(job)["state"], "RUNNING") << "that was to be seen during the next generation";
  }
  expect_exact_finish(job, spec);
  expect_only_slurmd_on(victim);
}

// The management network between a node and a controller that was started again is away; the
// training's is not. All steps take the node's ranks, which proves that it lives.
TEST_F(NodeLoss, ANodeThatOnlyCannotReachANewControllerTrainsOn) {
  const JobId job = start(SlurmJob{.training = {.name = "endless", .steps = 1000000},
                                   .more = "limits: {register: 3s}\n"});
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  if (!blocks(victim)) GTEST_SKIP() << "no network namespaces or no nftables here";
  ASSERT_TRUE(end_process(before["controller"]["pid"].get<pid_t>()));
  const auto is_told = [&] { return causes(job, "TrainingSeen") != ""; };
  ASSERT_TRUE(wait_until(home_.directory(), is_told, kPatience)) << diagnosis(job);
  const json blocked = status(job);
  EXPECT_NE(blocked["controller"]["pid"], before["controller"]["pid"]);
  EXPECT_EQ(node_of(blocked, victim)["note"], "trains; its agent has not reached this controller");
  // Far past the next limit.
  ASSERT_TRUE(home_.wait_for_step(job, blocked["step"].get<uint64_t>() + 200, kPatience));
  cluster("heal", victim);
  const auto is_back = [&] { return node_of(status(job), victim)["note"] == ""; };
  EXPECT_TRUE(wait_until(home_.directory(), is_back, kPatience)) << diagnosis(job);
  const json after = status(job);
  EXPECT_EQ(after["state"], "RUNNING");
  EXPECT_EQ(after["generation"], before["generation"]) << causes(job, "JobRecovering");
  EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "CANCELLED");
}

// Past SlurmdTimeout Slurm takes the node out of the job, which goes on without its batch script; a
// surviving agent starts the successor controller, which ends the job.
TEST_F(NodeLoss, BatchNodeGoneForGood) {
  const SlurmJob spec{.nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = batch_node(job);
  cluster("kill", victim);
  expect_exact_finish(job, spec);
  EXPECT_NE(status(job)["controller"]["node"], victim);
  EXPECT_NE(causes(job, "NodeLost").find("have waited in a collective"), std::string::npos)
      << "the successor waited for the node's time to register: " << causes(job, "NodeDown");
}

// Nobody else has its ranks' place: the successor controller tries to start it again until Slurm
// has taken it out of the job, and then has the job requeued without it.
TEST_F(NodeLoss, BatchNodeGoneForGoodWithoutASpare) {
  const SlurmJob spec;
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = batch_node(job);
  cluster("kill", victim);
  expect_exact_finish(job, spec);
  EXPECT_TRUE(node_of(status(job), victim).is_null()) << status(job);
  EXPECT_NE(causes(job, "RequeueJob").find("requeued without " + victim), std::string::npos);
  EXPECT_EQ(causes(job, "LaunchNode").find("attempt"), std::string::npos)
      << "Slurm had taken it by then";
}

// Back before SlurmdTimeout Slurm finds the batch script missing and puts the job into the queue.
TEST_F(NodeLoss, BatchNodeBackAtOnce) {
  const SlurmJob spec{.nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = batch_node(job);
  cluster("kill", victim);
  cluster("heal", victim);
  expect_exact_finish(job, spec);
}

}  // namespace
}  // namespace hpctl::testing
