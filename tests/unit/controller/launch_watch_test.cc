// SPDX-License-Identifier: Apache-2.0
// A launch that a silent directory holds up is storage's failure, and is told once.
#include "controller/engine/launch_watch.h"

#include <gtest/gtest.h>

#include "tests/support/hand_clock.h"

namespace hpctl {
namespace {

constexpr ActionId order_of(uint64_t seq) { return {Seq{seq}, 0}; }
const core::LaunchNode kLaunch{JobId{1}, "n1"};

TEST(LaunchWatch, LaunchThatHangsIsToldOnceAsAFailureOfStorage) {
  test::HandClock clock;
  LaunchWatch watch(clock);
  const auto hangs = watch.watched(order_of(1), kLaunch, [&] {
    EXPECT_TRUE(watch.take_held_up().empty());
    clock.now_ms += LaunchWatch::kSilentMs;
    const auto held_up = watch.take_held_up();
    ASSERT_EQ(held_up.size(), 1U);
    EXPECT_EQ(held_up[0].action, order_of(1));
    EXPECT_EQ(held_up[0].node, "n1");
    EXPECT_TRUE(held_up[0].storage);
    EXPECT_FALSE(held_up[0].permanent);
    EXPECT_TRUE(watch.take_held_up().empty());
    // The next order waits behind it, and could not be carried out either.
    const auto next = watch.watched(order_of(2), kLaunch, [] {});
    EXPECT_EQ(watch.take_held_up().size(), 1U);
  });
  hangs();
}

TEST(LaunchWatch, LaunchThatWaitsForItsTurnIsNotHeldUp) {
  test::HandClock clock;
  LaunchWatch watch(clock);
  int done = 0;
  const auto launch = watch.watched(order_of(1), kLaunch, [&] { ++done; });
  clock.now_ms += 10 * LaunchWatch::kSilentMs;
  EXPECT_TRUE(watch.take_held_up().empty());
  launch();
  EXPECT_EQ(done, 1);
  clock.now_ms += 10 * LaunchWatch::kSilentMs;
  EXPECT_TRUE(watch.take_held_up().empty()) << "its lane is at nothing";
}

// All threads of the lanes hang in launches of other nodes.
TEST(LaunchWatch, LaunchBehindHungLanesIsHeldUp) {
  test::HandClock clock;
  LaunchWatch watch(clock);
  const auto waits = watch.watched(order_of(1), {JobId{1}, "n2"}, [] {});
  const auto hangs = watch.watched(order_of(2), kLaunch, [&] {
    clock.now_ms += LaunchWatch::kSilentMs;
    EXPECT_EQ(watch.take_held_up().size(), 2U);
  });
  hangs();
}

TEST(LaunchWatch, OrderThatIsOverIsNotCarriedOut) {
  test::HandClock clock;
  LaunchWatch watch(clock);
  int done = 0;
  const auto launch = watch.watched(order_of(1), kLaunch, [&] { ++done; });
  watch.over(order_of(1));
  launch();
  EXPECT_EQ(done, 0);
}

}  // namespace
}  // namespace hpctl
