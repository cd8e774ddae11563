// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/copy_pace.h"

#include <gtest/gtest.h>

namespace hpctl {
namespace {

TEST(StepsBetweenCopies, EveryStepIfACopyCostsLessThanOnePercent) {
  EXPECT_EQ(steps_between_copies(1.0, 1.0), 1);
  EXPECT_EQ(steps_between_copies(1.0, 1.0099), 1);
  EXPECT_EQ(steps_between_copies(100.0, 100.5), 1);
  EXPECT_EQ(steps_between_copies(1.0, 0.9), 1) << "noise";
  EXPECT_EQ(steps_between_copies(0.0, 0.0), 1) << "nothing is measured";
}

TEST(StepsBetweenCopies, ElseTheFewestWithWhichTheyCostLessThanThat) {
  for (const double cost : {0.0101, 0.015, 0.0249, 0.1, 0.777, 3.0}) {
    const int64_t steps = steps_between_copies(2.0, 2.0 * (1 + cost));
    EXPECT_LT(cost / static_cast<double>(steps), 0.01) << cost;
    EXPECT_GT(cost / static_cast<double>(steps - 1), 0.0099) << cost;
  }
  EXPECT_EQ(steps_between_copies(1.0, 1e9), kMostStepsBetweenCopies);
}

// Steps from `step` on, each as it is with that pace. The newest step that was copied.
struct Steps {
  CopyPace pace;
  uint64_t step = 0;
  uint64_t copied = 0;
  bool beside = false;
  int copies = 0;
  int news = 0;

  void take(int count, double plain_s, double copy_s) {
    for (int i = 0; i < count; ++i) {
      ++step;
      news += pace.step_done(plain_s + (beside ? copy_s : 0), beside) ? 1 : 0;
      beside = pace.is_due(step, copied);
      if (!beside) continue;
      copied = step;
      ++copies;
    }
  }
};

TEST(CopyPace, BeginsWithATrialAndDecidesOnce) {
  Steps cheap{CopyPace(0)};
  cheap.take(8, 1.0, 0.001);
  EXPECT_TRUE(cheap.pace.is_trial());
  EXPECT_EQ(cheap.copies, 4) << "every second step";
  cheap.take(3, 1.0, 0.001);
  EXPECT_FALSE(cheap.pace.is_trial());
  EXPECT_EQ(cheap.pace.every(), 1);
  cheap.take(500, 1.0, 0.001);
  EXPECT_EQ(cheap.pace.every(), 1);
  EXPECT_EQ(cheap.copied, cheap.step);
  EXPECT_EQ(cheap.news, 1);
  Steps dear{CopyPace(0)};
  dear.take(500, 1.0, 0.045);
  EXPECT_EQ(dear.pace.every(), 5);
  EXPECT_NEAR(dear.copies, 100, 5);
}

// The first steps compile.
TEST(CopyPace, FirstStepsDoNotCount) {
  Steps steps{CopyPace(0)};
  steps.take(static_cast<int>(CopyPace::kUncounted), 100.0, 50.0);
  steps.take(20, 1.0, 0.0);
  EXPECT_EQ(steps.pace.every(), 1);
  EXPECT_DOUBLE_EQ(steps.pace.plain_s(), 1.0);
}

// A step that becomes slower beside copies looks as if they had become dear: some are left out,
// measured, and copied again. A single slow step changes nothing.
TEST(CopyPace, FollowsAChange) {
  Steps steps{CopyPace(0)};
  steps.take(100, 1.0, 0.002);
  steps.take(1, 5.0, 0.002);
  steps.take(100, 1.0, 0.002);
  EXPECT_EQ(steps.pace.every(), 1);
  EXPECT_EQ(steps.news, 1);
  steps.take(40, 1.5, 0.003);
  EXPECT_GT(steps.pace.every(), 1);
  steps.take(2000, 1.5, 0.003);
  EXPECT_EQ(steps.pace.every(), 1) << "that was no copy's fault";
  steps.take(200, 1.5, 0.04);
  EXPECT_EQ(steps.pace.every(), 3);
}

TEST(CopyPace, ANumberIsANumber) {
  Steps steps{CopyPace(7)};
  steps.take(70, 1.0, 10.0);
  EXPECT_EQ(steps.copies, 10);
  EXPECT_EQ(steps.pace.every(), 7);
  EXPECT_EQ(steps.news, 0);
  EXPECT_FALSE(steps.pace.is_trial());
}

}  // namespace
}  // namespace hpctl
