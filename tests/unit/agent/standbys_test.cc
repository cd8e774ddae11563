// SPDX-License-Identifier: Apache-2.0
// How many standbys an agent orders, and when; and what it tells of them.
#include "agent/standbys.h"

#include <gtest/gtest.h>

#include <string>

namespace hpctl::agent {
namespace {

class StandbysTest : public ::testing::Test {
 protected:
  void plan(uint32_t standbys) {
    v1::StartWorkers start;
    start.set_generation(1);
    start.add_ranks(0);
    start.set_standbys(standbys);
    standbys_.plan(start);
    standbys_.take_order(holder::Spawn());
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

  void is_ready(uint64_t incarnation) { say(incarnation, holder::WorkerPart::kIdle, 0, 1); }
  // "ready loading bytes", and whether they are settled; "" = nothing was told.
  std::string told(int64_t now_ms = 0) {
    v1::Heartbeat heartbeat;
    standbys_.tell(heartbeat, now_ms);
    if (!heartbeat.has_standbys()) return "";
    const v1::Standbys& standbys = heartbeat.standbys();
    return std::to_string(standbys.ready()) + " " + std::to_string(standbys.loading()) + " " +
           std::to_string(standbys.memory_bytes()) + (standbys.settled() ? " settled" : "");
  }

  int measured_ = 0;
  Standbys standbys_{[this](uint64_t pid) {
    ++measured_;
    return 1'000 * pid;
  }};

 private:
  void say(uint64_t incarnation, holder::WorkerPart part, int64_t now_ms, uint8_t is_ready = 0) {
    standbys_.on({incarnation, 1, -1, -1, 100 + incarnation, part, is_ready}, now_ms);
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

// The command's script lies on a file server that does not answer for a while.
TEST_F(StandbysTest, WaitForTheirOrder) {
  v1::StartWorkers start;
  start.add_ranks(0);
  start.set_standbys(1);
  standbys_.plan(start);
  standbys_.all_run(0);
  EXPECT_EQ(started(), 0);
  EXPECT_EQ(standbys_.due_ms(), INT64_MAX) << "the loop does not spin";
  EXPECT_TRUE(standbys_.take_order(holder::Spawn())) << "they are due";
  EXPECT_EQ(started(), 1);
  standbys_.plan(start);
  EXPECT_FALSE(standbys_.take_order(Error{ErrorCode::kNotFound, "no such script"}));
  standbys_.all_run(0);
  EXPECT_EQ(started(), 0);
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

// What stays as it is costs no traffic, and no look at the process.
TEST_F(StandbysTest, WhoIsReadyIsToldWhenItChanges) {
  EXPECT_EQ(told(), "0 0 0") << "that there are none is known then";
  EXPECT_EQ(told(), "");
  plan(2);
  EXPECT_EQ(started(), 2);
  idles(1);
  idles(2);
  EXPECT_EQ(told(), "0 2 0");
  is_ready(1);
  EXPECT_EQ(told(), "1 1 101000");
  is_ready(1);
  EXPECT_EQ(told(), "");
  EXPECT_EQ(measured_, 1);
  standbys_.forget_told();
  EXPECT_EQ(told(), "1 1 101000") << "to the next controller";
  standbys_.on({1, 2, 0, 0, 101, holder::WorkerPart::kMember, 1}, 0);
  EXPECT_EQ(told(), "0 1 0");
  ends(2, 1'000);
  EXPECT_EQ(told(), "0 0 0");
}

TEST_F(StandbysTest, AreSettledWhenAllThatWillBeReadyAre) {
  plan(2);
  EXPECT_EQ(started(), 2);
  idles(1);
  idles(2);
  is_ready(1);
  EXPECT_EQ(told(), "1 1 101000");
  is_ready(2);
  EXPECT_EQ(told(), "2 0 203000 settled");
  plan(3);
  EXPECT_EQ(told(), "2 0 203000") << "one more is to come";
  EXPECT_EQ(told(59'999), "");
  EXPECT_EQ(told(60'000), "2 0 203000 settled") << "it is not waited for any longer";
  plan(0);
  EXPECT_EQ(told(), "2 0 203000 settled") << "none is wanted";
}

}  // namespace
}  // namespace hpctl::agent
