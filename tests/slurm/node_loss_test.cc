// SPDX-License-Identifier: Apache-2.0
// Lost nodes on a real Slurm.
#include <gtest/gtest.h>

#include "tests/slurm/slurm_test.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;

using NodeLoss = SlurmTest;

TEST_F(NodeLoss, SpareTakesTheRanksAtOnce) {
  const SlurmJob spec{.nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  cluster("kill", victim);
  expect_exact_finish(job, spec);
  const json after = status(job);
  EXPECT_EQ(after["generation"], 2) << causes(job, "JobRecovering");
  EXPECT_NE(node_of(after, victim)["role"], "active") << after;
}

}  // namespace
}  // namespace hpctl::testing
