// SPDX-License-Identifier: Apache-2.0
// SIGTERM to all holders of a job ends it; SIGTERM to one of them is the departure of its node.
#include "controller/agents/told_nodes.h"

#include <gtest/gtest.h>

namespace hpctl {
namespace {

constexpr JobId kToldJob{7};

std::set<std::string> two_nodes(JobId) { return {"n0", "n1"}; }

TEST(ToldNodes, AllNodesTogetherAreTheJob) {
  ToldNodes nodes;
  nodes.told({kToldJob, "n0"}, "life", "signal 15", 1'000);
  EXPECT_TRUE(nodes.take(1'500, true, two_nodes).empty());
  EXPECT_FALSE(nodes.take_whole(kToldJob));
  nodes.told({kToldJob, "n1"}, "life", "signal 15", 1'500);
  EXPECT_TRUE(nodes.take(1'600, true, two_nodes).empty());
  EXPECT_TRUE(nodes.take_whole(kToldJob));
  EXPECT_FALSE(nodes.take_whole(kToldJob)) << "once";
  EXPECT_TRUE(nodes.take(9'000, true, two_nodes).empty());
}

TEST(ToldNodes, OneNodeAloneDeparts) {
  ToldNodes nodes;
  nodes.told({kToldJob, "n1"}, "life", "signal 15", 1'000);
  EXPECT_TRUE(nodes.take(1'000 + ToldNodes::kTogetherMs - 1, true, two_nodes).empty());
  const auto departures = nodes.take(1'000 + ToldNodes::kTogetherMs, true, two_nodes);
  ASSERT_EQ(departures.size(), 1U);
  EXPECT_EQ(departures[0].node, "n1");
  EXPECT_EQ(departures[0].boot_id, "life");
  EXPECT_EQ(departures[0].cause, "signal 15");
  EXPECT_FALSE(nodes.take_whole(kToldJob));
  EXPECT_TRUE(nodes.take(9'000, true, two_nodes).empty());
}

TEST(ToldNodes, ANodeThatIsNotHeardIsNotWaitedFor) {
  ToldNodes nodes;
  nodes.told({kToldJob, "n0"}, "life", "signal 15", 1'000);
  const auto one = [](JobId) { return std::set<std::string>{"n0"}; };
  EXPECT_TRUE(nodes.take(1'100, true, one).empty());
  EXPECT_TRUE(nodes.take_whole(kToldJob));
}

TEST(ToldNodes, NodesOfTheLocalBackendDepart) {
  ToldNodes nodes;
  nodes.told({kToldJob, "n0"}, "life", "signal 15", 1'000);
  nodes.told({kToldJob, "n1"}, "life", "signal 15", 1'000);
  EXPECT_EQ(nodes.take(3'000, false, two_nodes).size(), 2U);
  EXPECT_FALSE(nodes.take_whole(kToldJob));
}

}  // namespace
}  // namespace hpctl
