// SPDX-License-Identifier: Apache-2.0
// A job that Slurm preempts saves within its grace time, and Slurm requeues it. Its nodes were
// taken for lost, and the script that ended first kept Slurm from requeueing it.
#include <gtest/gtest.h>

#include "tests/slurm/slurm_test.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;

class Preemption : public SlurmTest {
 public:
  static void SetUpTestSuite() { bring_up("--preemption"); }
};

TEST_F(Preemption, TheJobSavesAndIsRequeued) {
  const SlurmJob spec;
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  {
    const HeldTraining held = hold(job);  // it is not to finish before it is preempted
    const auto urgent = slurm({"sbatch", "--parsable", "--partition=urgent", "--nodes=4",
                               "--exclusive", "--output=/dev/null", "--wrap=sleep 5"});
    ASSERT_EQ(urgent.exit_code, 0) << urgent.err;
    const auto is_told = [&] { return causes(job, "CancelRequested") != ""; };
    ASSERT_TRUE(wait_until(home_.directory(), is_told, kPatience)) << diagnosis(job);
  }
  const auto goes_on = [&] {
    const json now = status(job);
    return now["generation"].get<int>() > before["generation"].get<int>();
  };
  ASSERT_TRUE(wait_until(home_.directory(), goes_on, kPatience)) << diagnosis(job);
  EXPECT_NE(causes(job, "JobCancelled").find("Slurm preempted the job"), std::string::npos)
      << diagnosis(job);
  EXPECT_EQ(causes(job, "NodeLost"), "");
  EXPECT_EQ(causes(job, "JobRecovering"), "");
  expect_exact_finish(job, spec);
  const auto lemons = home_.hpctl({"nodes", "lemons", "--json"});
  EXPECT_EQ(json::parse(lemons.out, nullptr, false)["nodes"], json::array()) << lemons.out;
}

}  // namespace
}  // namespace hpctl::testing
