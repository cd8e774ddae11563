// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/clock_offsets.h"

#include <gtest/gtest.h>

#include <map>

namespace hpctl::agent {
namespace {

using Far = std::map<int32_t, int64_t>;
constexpr int64_t kNow = 1'790'000'000'000;

TEST(ClockOffsets, OfClocksThatAgreeNobodyIsNamedHoweverLateOrdersCome) {
  ClockOffsets offsets;
  EXPECT_EQ(offsets.far_off_ms(), Far{});
  for (int32_t node = 0; node < 16; ++node) {
    offsets.learn(node, kNow, kNow + (node == 5 ? 3'000 : 2));  // busy in its first round
    offsets.learn(node, kNow + 5'000, kNow + 5'001);
  }
  EXPECT_EQ(offsets.far_off_ms(), Far{});
}

TEST(ClockOffsets, WhoIsFarFromTheOthersIsNamedTheCoordinatorToo) {
  for (const int64_t off_ms : {-86'400'000LL, -1'000LL, 1'000LL, 5'000LL}) {
    ClockOffsets offsets;
    // The coordinator, node 0, is off, so all others seem to be.
    for (int32_t node = 0; node < 7; ++node) {
      offsets.learn(node, kNow + off_ms, node == 0 ? kNow + off_ms : kNow);
    }
    EXPECT_EQ(offsets.far_off_ms(), (Far{{0, off_ms}}));
  }
}

TEST(ClockOffsets, OfTwoBothAreNamedAndOfThreeTheOne) {
  ClockOffsets two;
  two.learn(0, kNow, kNow);
  EXPECT_EQ(two.far_off_ms(), Far{}) << "with nobody to compare it with";
  two.learn(1, kNow, kNow + 2'000);
  EXPECT_EQ(two.far_off_ms(), (Far{{0, -2'000}, {1, 2'000}}));
  two.learn(2, kNow, kNow);
  EXPECT_EQ(two.far_off_ms(), (Far{{1, 2'000}}));
}

}  // namespace
}  // namespace hpctl::agent
