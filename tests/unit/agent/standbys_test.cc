// SPDX-License-Identifier: Apache-2.0
// How many standbys an agent orders, and when.
#include "agent/standbys.h"

#include <gtest/gtest.h>

namespace hpctl::agent {
namespace {

class StandbysTest : public ::testing::Test {
 protected:
  void plan(uint32_t standbys) {
    v1::StartWorkers start;
    start.set_generation(1);
    start.add_ranks(0);
    start.set_standbys(standbys);
    standbys_.plan(start, {42, "n1", "/job", "/opt/hpctl/bin", "/progress"});
    standbys_.all_run(0);
  }
  int started() {
    int count = 0;
    standbys_.replenish([&](const holder::Spawn&) { ++count; });
    return count;
  }
  void idles(uint64_t incarnation) { say(incarnation, holder::WorkerPart::kIdle, 0); }
  void ends(uint64_t incarnation, int64_t now_ms) {
    say(incarnation, holder::WorkerPart::kEnded, now_ms);
  }

  Standbys standbys_;

 private:
  void say(uint64_t incarnation, holder::WorkerPart part, int64_t now_ms) {
    standbys_.on({incarnation, 1, -1, -1, 100 + incarnation, part}, now_ms);
  }
};

TEST_F(StandbysTest, AreStartedOnceInAGeneration) {
  plan(2);
  EXPECT_EQ(started(), 2);
  idles(1);
  idles(2);
  EXPECT_EQ(started(), 0);
  EXPECT_EQ(standbys_.due_ms(), INT64_MAX);
}

TEST_F(StandbysTest, OneThatHasEndedIsReplacedAFewTimes) {
  plan(1);
  EXPECT_EQ(started(), 1);
  idles(1);
  for (uint64_t incarnation = 1; incarnation <= 3; ++incarnation) {
    const auto now_ms = static_cast<int64_t>(1'000 * incarnation);
    ends(incarnation, now_ms);
    EXPECT_EQ(standbys_.due_ms(), now_ms + 5'000);
    EXPECT_EQ(started(), 1);
    idles(incarnation + 1);
  }
  ends(4, 9'000);
  EXPECT_EQ(standbys_.due_ms(), INT64_MAX) << "what ends them may be for good";
  plan(1);
  EXPECT_EQ(started(), 1) << "in the next generation";
}

// One that takes part is no standby any more.
TEST_F(StandbysTest, OneThatWasUsedIsReplacedInTheNextGeneration) {
  plan(1);
  EXPECT_EQ(started(), 1);
  idles(1);
  standbys_.on({1, 2, 0, 0, 101, holder::WorkerPart::kMember}, 0);
  ends(1, 1'000);
  EXPECT_EQ(standbys_.due_ms(), INT64_MAX);
}

}  // namespace
}  // namespace hpctl::agent
