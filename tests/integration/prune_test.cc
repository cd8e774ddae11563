// SPDX-License-Identifier: Apache-2.0
// A real job whose controller deletes older checkpoints: checkpoint.keep holds, and a fault in
// between loses nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/job/lineage.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/processes.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::ContainsRegex;

constexpr seconds kLong{120};

class PrunedJob : public ::testing::Test {
 protected:
  void submit(const TrainingJob& job) {
    job_ = cluster_.submit(job.yaml());
    directory_ = cluster_.paths().job(job_) + "/checkpoints";
  }
  std::vector<CheckpointRef> checkpoints() const { return list_checkpoints(directory_).value(); }
  std::string told(const std::string& type) const {
    std::string causes;
    for (const json& event : cluster_.events(job_)) {
      if (event["type"] == type) causes += event["cause"].get<std::string>() + "\n";
    }
    return causes;
  }
  bool wait_for_checkpoints(size_t count) const {
    return wait_until(
        directory_, [&] { return checkpoints().size() == count; }, kLong);
  }

  LocalCluster cluster_;
  JobId job_;
  std::string directory_;
};

// With keep: 1 the checkpoint that a recovery starts from is the only one.
TEST_F(PrunedJob, OneCheckpointIsKeptThroughAFault) {
  submit({.steps = 60, .checkpoint_every = 5, .keep = 1, .heartbeat_timeout = "10s"});
  ASSERT_TRUE(cluster_.wait_for_step(job_, 12, kLong));
  EXPECT_TRUE(end_process(worker_pid(cluster_.status(job_), 1)));
  ASSERT_EQ(cluster_.wait_for_end(job_, kLong), "FINISHED") << told("JobFailed");
  EXPECT_TRUE(wait_for_checkpoints(1)) << told("CheckpointsPruned") << told("CheckpointsKept");
  EXPECT_EQ(checkpoints().back().step, 60U);
  // By a node while the job trains, by the controller once it has finished.
  EXPECT_THAT(told("CheckpointsPruned"), ContainsRegex(" is verified( by n0)?; deleted: step-"));
}

TEST_F(PrunedJob, AllAreKeptWhereThereIsRoom) {
  submit({.steps = 20, .checkpoint_every = 5, .keep = 9, .heartbeat_timeout = "10s"});
  ASSERT_EQ(cluster_.wait_for_end(job_, kLong), "FINISHED") << told("JobFailed");
  EXPECT_EQ(checkpoints().back().step, 20U);
  EXPECT_EQ(told("CheckpointsPruned"), "");
}

}  // namespace
}  // namespace hpctl::testing
