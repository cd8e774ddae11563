// SPDX-License-Identifier: Apache-2.0
// The time before SIGKILL suffices for both saves, for one of them, or for none.
#include "trainer/state/hurried_save.h"

#include <gtest/gtest.h>

namespace hpctl {
namespace {

// One rank alone decides.
bool gives_up(const PartOfSave& part, double left_s) {
  return is_given_up(vote_on_save(part, left_s), 1);
}

// A quarter is written after 5 s, so a whole part takes 20 s.
constexpr PartOfSave kQuarter = {.seconds = 5, .written = 0.25};

TEST(HurriedSave, TimeForBothKeepsOlder) { EXPECT_FALSE(gives_up(kQuarter, 36)); }

TEST(HurriedSave, TimeForOneGivesUpOlder) { EXPECT_TRUE(gives_up(kQuarter, 34)); }

TEST(HurriedSave, TimeForOlderOnlyKeepsIt) { EXPECT_FALSE(gives_up(kQuarter, 19)); }

TEST(HurriedSave, TimeForNoneKeepsOlder) { EXPECT_FALSE(gives_up(kQuarter, 5)); }

// Nothing says how long it takes; storage may be dead.
TEST(HurriedSave, UnknownSpeedKeepsOlder) {
  EXPECT_FALSE(gives_up({.seconds = 5}, 10));
  EXPECT_FALSE(gives_up({.seconds = 5}, 1'000));
}

TEST(HurriedSave, LastCheckpointTellsSpeedAtFirst) {
  const PartOfSave begun = {.seconds = 1, .usual_seconds = 20};
  EXPECT_TRUE(gives_up(begun, 30));
  EXPECT_FALSE(gives_up(begun, 42));
}

// The bytes are in the page cache, and the disk is behind.
TEST(HurriedSave, FastWritesDoNotHideSlowDisk) {
  EXPECT_TRUE(gives_up({.seconds = 1, .written = 0.9, .usual_seconds = 20}, 30));
}

// To give it up would take as long as to finish it.
TEST(HurriedSave, PartOnItsWayToDiskIsNotGivenUp) {
  const PartOfSave syncing = {
      .seconds = 10, .written = 1, .can_be_given_up = false, .usual_seconds = 20};
  EXPECT_FALSE(gives_up(syncing, 29));
  EXPECT_FALSE(gives_up(syncing, 31)) << "both fit";
}

// A fast rank waits for a slow one.
TEST(HurriedSave, OneSlowRankIsEnough) {
  const PartOfSave done = {.seconds = 2, .written = 1, .is_written = true};
  SaveVotes sum = vote_on_save(done, 30);
  EXPECT_FALSE(is_given_up(sum, 1));
  const SaveVotes slow = vote_on_save(kQuarter, 30);
  sum.too_slow += slow.too_slow;
  sum.newest_fits += slow.newest_fits;
  EXPECT_TRUE(is_given_up(sum, 2));
}

// Its newest part would not be in time, so the newest checkpoint would not be whole.
TEST(HurriedSave, EveryRankMustFit) {
  SaveVotes sum = vote_on_save(kQuarter, 30);
  const SaveVotes slower = vote_on_save({.seconds = 5, .written = 0.1}, 30);
  sum.too_slow += slower.too_slow;
  sum.newest_fits += slower.newest_fits;
  EXPECT_FALSE(is_given_up(sum, 2));
}

}  // namespace
}  // namespace hpctl
