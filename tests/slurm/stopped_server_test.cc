// SPDX-License-Identifier: Apache-2.0
// The file server stops for a minute under a Slurm job. The job's directory, its logs and its
// checkpoints lie there. Nothing is lost: no node, no step, no bit.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <memory>

#include "tests/slurm/slurm_test.h"
#include "tests/support/served_directory.h"

namespace hpctl::testing {
namespace {

constexpr std::chrono::milliseconds kStopped{60'000};

class StoppedServer : public SlurmTest {
 public:
  static void SetUpTestSuite() {}
  static void TearDownTestSuite() {}

 protected:
  // The nodes see what is mounted before they start.
  void SetUp() override {
    server_ = std::make_unique<test::ServedDirectory>(home_.paths().home());
    if (!server_->served()) GTEST_SKIP() << "no bindfs here (apt-get install bindfs)";
    bring_up("");
    SlurmTest::SetUp();
  }
  void TearDown() override {
    if (!server_->served()) return;
    SlurmTest::TearDown();
    SlurmTest::TearDownTestSuite();
  }

  std::unique_ptr<test::ServedDirectory> server_;
};

TEST_F(StoppedServer, AMinuteLosesNothing) {
  SlurmJob spec;
  spec.training.heartbeat_timeout = "10s";
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const nlohmann::json before = status(job);
  EXPECT_EQ(before["state"], "RUNNING");
  server_->stop();
  ::poll(nullptr, 0, kStopped.count());  // not an awaited event but the fault itself
  server_->go_on();
  expect_exact_finish(job, spec);
  const nlohmann::json after = status(job);
  EXPECT_EQ(after["restarts"], 0) << diagnosis(job);
  EXPECT_EQ(after["generation"], before["generation"]) << causes(job, "JobRecovering");
  EXPECT_EQ(causes(job, "NodeLost"), "");
  for (const nlohmann::json& node : before["nodes"]) {
    const nlohmann::json later = node_of(after, node["name"]);
    EXPECT_EQ(later.value("holder_pid", 0), node.value("holder_pid", -1)) << later;
  }
}

}  // namespace
}  // namespace hpctl::testing
