// SPDX-License-Identifier: Apache-2.0
// What people and clusters get wrong when a job is submitted: one line with the cause and what to
// do, the documented exit code, and no job left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/slurm/slurm_test.h"

namespace hpctl::testing {
namespace {

using ::testing::HasSubstr;

class BadInput : public SlurmTest {
 protected:
  static void expect_no_job() { EXPECT_EQ(slurm({"squeue", "-h"}).out, ""); }
};

TEST_F(BadInput, UnknownPartition) {
  const auto result = submit(SlurmJob{.slurm = "{partition: nosuch}"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("nosuch"));
  EXPECT_THAT(result.err, HasSubstr("partition"));
  expect_no_job();
}

TEST_F(BadInput, SlurmctldIsDown) {
  {
    const StoppedDaemon slurmctld("slurmctld");
    const auto result = submit(SlurmJob{});
    EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr("slurmctld"));
    EXPECT_THAT(result.err, HasSubstr("trying again until"));
  }
  expect_no_job();
}

TEST_F(BadInput, MoreNodesThanThereAre) {
  const auto result = submit(SlurmJob{.nodes = "{count: 2, spares: 7}"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("9 nodes"));
  expect_no_job();
}

// /tmp/hpctl-UID is each node's own on the cluster with namespaces. The directory that submit makes
// on this machine is of this test alone, and goes: another cluster's owner would be refused.
TEST_F(BadInput, CheckpointDirectoryIsNotShared) {
  if (!has_network_namespaces()) GTEST_SKIP() << "no namespaces here: all directories are shared";
  const std::string not_shared =
      "/tmp/hpctl-0/" + std::filesystem::path(home_.directory()).filename().string();
  const SlurmJob spec{.checkpoint_dir = not_shared};
  const auto result = submit(spec, {"--wait"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.out + result.err, HasSubstr("n2"));
  EXPECT_THAT(result.out + result.err, HasSubstr("that all nodes share"));
  EXPECT_TRUE(wait_until(
      home_.directory(),
      [] {
        return slurm({"squeue", "-h"}).out.empty();
      },
      kPatience))
      << slurm({"squeue"}).out;
  std::filesystem::remove_all(not_shared);
}

}  // namespace
}  // namespace hpctl::testing
