// SPDX-License-Identifier: Apache-2.0
// Real jobs that are told to end at random moments, most of them in an evaluation: the last
// completed step is in a checkpoint, and nothing is left behind.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>

#include "common/base/file.h"
#include "common/base/rng.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/stopped_job.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

using std::chrono::seconds;

constexpr seconds kLong{120};

class Stop : public ::testing::Test {
 protected:
  // Saves of its own it has none, and it evaluates for about as long as it trains.
  void SetUp() override {
    ASSERT_TRUE(make_directories(texts()).ok());
    std::ofstream(texts() + "/0") << std::string(20'000, 'a');
    std::ofstream(texts() + "/1") << std::string(20'000, 'b');
  }
  std::string texts() const { return cluster_.directory() + "/texts"; }
  std::string yaml(const std::string& name) const {
    TrainingJob job{.name = name,
                    .steps = 1'000'000,
                    .checkpoint_every = 0,
                    .standbys = 0,
                    .heartbeat_timeout = "10s",
                    .nodes = "1"};
    job.stability = "{}\n    validation: {every_steps: 20, sequences: 500}";
    std::string text = job.yaml();
    const std::string data = "/usr/share/common-licenses/GPL-3,";
    text.replace(text.find(data), data.size(), texts() + ", split: [1, 1, 0],");
    return text;
  }
  uint64_t last_step(JobId job) const { return last_step_in(cluster_.paths().job_metrics(job)); }
  uint64_t saved_step(JobId job) const {
    return saved_step_in(cluster_.paths().default_checkpoints(job));
  }

  LocalCluster cluster_;
};

TEST_F(Stop, CancelAtAnyMomentSavesTheLastStep) {
  Rng moments(20261128);
  for (int round = 0; round < 8; ++round) {
    const JobId job = cluster_.submit(yaml("round" + std::to_string(round)));
    ASSERT_TRUE(cluster_.wait_for_step(job, 1, kLong)) << cluster_.status(job);
    const milliseconds moment(moments.below(2'000));
    wait_until(
        cluster_.directory(), [] { return false; }, moment);
    ASSERT_EQ(cluster_.hpctl({"cancel", to_string(job)}).exit_code, 0);
    ASSERT_EQ(cluster_.wait_for_end(job, kLong), "CANCELLED");
    EXPECT_GT(last_step(job), 0U);
    EXPECT_EQ(saved_step(job), last_step(job)) << "cancelled after " << moment.count() << " ms";
  }
  cluster_.stop_and_expect_no_leftovers(seconds(30));
}

// No restart is left, and no checkpoint is there yet.
TEST_F(Stop, SpentBudgetSavesWhatMemoryHas) {
  std::string text = yaml("spent");
  const std::string restarts = "max_restarts: 50";
  text.replace(text.find(restarts), restarts.size(), "max_restarts: 0");
  const JobId job = cluster_.submit(text);
  ASSERT_TRUE(cluster_.wait_for_step(job, 5, kLong)) << cluster_.status(job);
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 1)));
  ASSERT_EQ(cluster_.wait_for_end(job, kLong), "FAILED");
  const uint64_t saved = saved_step(job);
  // Rank 1 may have died before it had applied the step that rank 0 reported.
  EXPECT_GE(saved + 1, last_step(job));
  const std::string reason = cluster_.status(job)["reason"];
  EXPECT_NE(reason.find("the restart budget is spent"), std::string::npos) << reason;
  EXPECT_NE(reason.find("saved as step-" + std::to_string(saved) + ".g2"), std::string::npos)
      << reason;
  cluster_.stop_and_expect_no_leftovers(seconds(30));
}

}  // namespace
}  // namespace hpctl::testing
