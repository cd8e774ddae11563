// SPDX-License-Identifier: Apache-2.0
// What only Slurm can bring back: a node whose holder died, a node that has rebooted, the whole job
// on other nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "common/base/file.h"
#include "tests/slurm/slurm_test.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;

class Relaunch : public SlurmTest {
 protected:
  // Of no use to new jobs up to the end of the scope.
  class DrainedNodes {
   public:
    explicit DrainedNodes(const std::string& names) : names_("nodename=" + names) {
      slurm({"scontrol", "update", names_, "state=drain", "reason=test"});
    }
    ~DrainedNodes() { slurm({"scontrol", "update", names_, "state=resume"}); }
    DrainedNodes(const DrainedNodes&) = delete;
    DrainedNodes& operator=(const DrainedNodes&) = delete;

   private:
    const std::string names_;
  };
};

// A plugin that takes Pyxis' options, with directories for images.
TEST_F(Relaunch, AContainerIsEnteredAgain) {
  const std::string cluster_directory = std::getenv("HPCTL_TEST_CLUSTER");
  const std::string image = home_.directory() + "/image";
  for (const char* name : {"bin", "usr", "lib", "lib64", "proc", "dev"}) {
    ASSERT_TRUE(make_directories(image + "/" + name).ok());
  }
  const std::string plugin = cluster_directory + "/plugstack.d/container.conf";
  ASSERT_TRUE(write_file_atomic(plugin, "required " HPCTL_SPANK_CONTAINER "\n").ok());
  SlurmJob spec;
  // Debian's libraries are found by way of /etc/alternatives.
  spec.slurm = "{partition: main, exclusive: true, container: {image: " + image +
               ", mounts: [/etc, " + cluster_directory + "]}}";
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  const auto in_image = [&](pid_t pid) {
    std::error_code gone;
    return std::filesystem::equivalent("/proc/" + std::to_string(pid) + "/root/.", image, gone);
  };
  EXPECT_TRUE(in_image(node_pid(before, 1, "holder_pid")));
  ASSERT_TRUE(end_process(node_pid(before, 1, "holder_pid")));
  const auto again = [&] {
    const pid_t holder = node_pid(status(job), 1, "holder_pid");
    return holder != node_pid(before, 1, "holder_pid") && in_image(holder);
  };
  EXPECT_TRUE(wait_until(home_.directory(), again, kPatience));
  expect_exact_finish(job, spec);
  EXPECT_EQ(std::remove(plugin.c_str()), 0);
}

TEST_F(Relaunch, SlurmctldIsAwayWhenAHolderDies) {
  SlurmJob spec;
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const HeldTraining held = hold(job);
  const json before = status(job);
  await_saved(job);
  ASSERT_FALSE(HasFailure());
  {
    const StoppedDaemon slurmctld("slurmctld");
    ASSERT_TRUE(end_process(node_pid(before, 1, "holder_pid")));
    const auto noticed = [&] { return status(job)["state"] == "RECOVERING"; };
    EXPECT_TRUE(wait_until(home_.directory(), noticed, kPatience));
  }
  expect_exact_finish(job, spec);
  EXPECT_GT(status(job)["generation"], before["generation"]);
}

TEST_F(Relaunch, WithoutASpareTheRebootedNodeComesBack) {
  const SlurmJob spec{.on_node_loss = "[wait]"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  cluster("kill", victim);
  const auto noticed = [&] { return status(job)["state"] == "RECOVERING"; };
  EXPECT_TRUE(wait_until(home_.directory(), noticed, kPatience));
  cluster("heal", victim);
  expect_exact_finish(job, spec);
}

// Slurm, without accounting, takes no exclusion from a job that has lost a node before its last
// process is gone (decision 0903). Where that was too late, the job gets the node again, which is
// back and the only one that is free, and asks once more. Either way it goes on without.
TEST_F(Relaunch, RequeueGoesOnWithoutTheLostNodeThoughItComesBack) {
  const SlurmJob spec{.on_node_loss = "[requeue]"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  const auto shows = [&](const std::string& text) {
    return slurm({"scontrol", "show", "job", to_string(job)}).out.find(text) != std::string::npos;
  };
  {
    const DrainedNodes others("n3,n4");
    ASSERT_TRUE(node_of(status(job), "n3").is_null() && node_of(status(job), "n4").is_null());
    cluster("kill", victim);
    EXPECT_TRUE(wait_until(
        home_.directory(), [&] { return shows("Restarts=1"); }, kPatience));
    cluster("heal", victim);
    EXPECT_TRUE(wait_until(
        home_.directory(), [&] { return shows("ExcNodeList=" + victim); }, kPatience));
  }
  expect_exact_finish(job, spec);
  EXPECT_TRUE(node_of(status(job), victim).is_null()) << status(job);
  const bool asked_again = shows("Restarts=2");
  EXPECT_TRUE(asked_again || shows("Restarts=1")) << slurm({"scontrol", "show", "job"}).out;
  EXPECT_EQ(causes(job, "ExclusionNotTaken") != "", asked_again);
}

TEST_F(Relaunch, AtItsTimeLimitTheJobGoesBackToTheQueueAndGoesOn) {
  const std::string checkpoints = home_.directory() + "/checkpoints";
  const JobId job =
      start(SlurmJob{.training = {.name = "endless", .steps = 1000000},
                     .slurm = "{partition: main, exclusive: true, time: 5, requeue_at_limit: true}",
                     .checkpoint_dir = checkpoints});
  ASSERT_FALSE(HasFailure());
  const std::string name = "jobid=" + to_string(job);
  const json before = status(job);
  end_soon(job);
  ASSERT_FALSE(HasFailure());
  const auto requeued = [&] {
    return slurm({"scontrol", "show", "job", to_string(job)}).out.find("Restarts=1") !=
           std::string::npos;
  };
  ASSERT_TRUE(wait_until(home_.directory(), requeued, kPatience)) << diagnosis(job);
  ASSERT_EQ(slurm({"scontrol", "update", name, "TimeLimit=10"}).exit_code, 0);
  const json saved = json::parse(home_.hpctl({"checkpoint", "show", checkpoints, "--json"}).out);
  const auto goes_on = [&] {
    const json now = status(job);
    return now["state"] == "RUNNING" && now["generation"] > before["generation"];
  };
  EXPECT_TRUE(wait_until(home_.directory(), goes_on, kPatience)) << diagnosis(job);
  // From the step that the first life saved when it was told to end.
  const std::string from = "starts at step " + std::to_string(saved["step"].get<uint64_t>());
  EXPECT_THAT(causes(job, "RecordGeneration"), ::testing::HasSubstr(from));
  EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "CANCELLED");
}

}  // namespace
}  // namespace hpctl::testing
