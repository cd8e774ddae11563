// SPDX-License-Identifier: Apache-2.0
// Local supervision rules, by table.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "agent/core/progress.h"
#include "agent/core/reconnect.h"
#include "agent/core/respawn.h"
#include "agent/core/signs_of_life.h"
#include "common/base/printable.h"

namespace hpctl::agent {
namespace {

TEST(Printable, KeepsTextAndReplacesTheRest) {
  struct Case {
    std::string input;
    std::string expected;
  };
  const Case cases[] = {{"plain", "plain"},
                        {"two\nlines\r\n", "two lines"},
                        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
                        {"\xe2\x82\xac \xf0\x9f\x98\x80", "\xe2\x82\xac \xf0\x9f\x98\x80"},
                        {"bad\xff\xc3", "bad??"},
                        {"\xc0\xaf", "??"},
                        {"\xed\xa0\x80", "???"},
                        {"bell\x07", "bell?"},
                        {"\x1b[31mred", "?[31mred"}};
  for (const Case& one : cases) EXPECT_EQ(printable_line(one.input, 100), one.expected);
  EXPECT_EQ(printable_line("abc\xe2\x82\xac", 5), "abc") << "never half a character";
}

TEST(RespawnPolicy, PausesGrowAndEnd) {
  RespawnPolicy policy;
  int64_t total = 0;
  int tries = 0;
  for (auto pause = policy.pause_after(0); pause; pause = policy.pause_after(0)) {
    EXPECT_LE(*pause, RespawnPolicy::kLongestPauseMs);
    total += *pause;
    ++tries;
  }
  EXPECT_EQ(tries, RespawnPolicy::kMaxShortLives);
  EXPECT_GT(total, 10'000);
  EXPECT_LT(total, 20'000);
}

TEST(RespawnPolicy, AUsefulLifeStartsTheCountAnew) {
  RespawnPolicy policy;
  for (int i = 0; i < 1000; ++i) {
    policy.pause_after(0);
    EXPECT_EQ(policy.pause_after(RespawnPolicy::kUsefulLifeMs), RespawnPolicy::kFirstPauseMs);
  }
}

TEST(RespawnPolicy, AProcessThatHangsAgainAndAgainIsGivenUp) {
  RespawnPolicy policy;
  const int64_t life = 3 * RespawnPolicy::kUsefulLifeMs;  // useful, but for the hang
  for (int i = 0; i < RespawnPolicy::kMaxHungLives; ++i) {
    EXPECT_TRUE(policy.pause_after(life, true)) << i;
  }
  EXPECT_FALSE(policy.pause_after(life, true));
}

TEST(RespawnPolicy, ALongLifeBeforeTheHangStartsTheCountAnew) {
  RespawnPolicy policy;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(policy.pause_after(RespawnPolicy::kUsefulLifeMs, true));
    EXPECT_TRUE(policy.pause_after(RespawnPolicy::kLifeWithoutHangMs, true));
  }
}

ProgressSample sample(uint64_t step, uint64_t checkpoint = 0) {
  ProgressSample result;
  result.mapped = true;
  result.step = step;
  result.checkpoint_step = checkpoint;
  result.first_step = time_of(step > 0 ? 1 : 0);
  return result;
}

TEST(ProgressWatch, FirstStepIsToldOncePerProcess) {
  ProgressWatch watch;
  watch.worker_started(0, 1);
  EXPECT_TRUE(watch.awaits_first_step());
  EXPECT_FALSE(watch.sampled(0, 1, ProgressSample()).first_step);
  EXPECT_FALSE(watch.sampled(0, 1, sample(0)).first_step);
  EXPECT_TRUE(watch.sampled(0, 1, sample(5)).first_step);
  EXPECT_FALSE(watch.awaits_first_step());
  EXPECT_FALSE(watch.sampled(0, 1, sample(6)).first_step);
  watch.worker_started(0, 2);
  EXPECT_TRUE(watch.awaits_first_step());
  EXPECT_FALSE(watch.sampled(0, 1, sample(7)).first_step) << "a page of the old generation";
  EXPECT_TRUE(watch.sampled(0, 2, sample(6)).first_step);
}

TEST(ProgressWatch, ACompletedStepIsSeenOnceAlsoAfterARollback) {
  ProgressWatch watch;
  watch.worker_started(0, 1);
  EXPECT_FALSE(watch.sampled(0, 1, sample(0)).step);
  EXPECT_TRUE(watch.sampled(0, 1, sample(5)).step);
  EXPECT_FALSE(watch.sampled(0, 1, sample(5)).step);
  EXPECT_TRUE(watch.sampled(0, 1, sample(3)).step);
}

TEST(ProgressWatch, AWorkerThatEndedIsNotWaitedFor) {
  ProgressWatch watch;
  watch.worker_started(0, 1);
  watch.worker_started(1, 1);
  watch.sampled(0, 1, sample(1));
  watch.worker_ended(1, 1);
  EXPECT_FALSE(watch.awaits_first_step());
  watch.worker_started(1, 2);
  watch.worker_ended(1, 1);
  EXPECT_TRUE(watch.awaits_first_step()) << "the old one's end is not the new one's";
}

TEST(ProgressWatch, CommitsAreReportedOnceAndOnlyWhenNewer) {
  ProgressWatch watch(Reported{Commit{1, 10}, {}});
  watch.worker_started(0, 1);
  watch.worker_started(1, 1);
  EXPECT_FALSE(watch.sampled(0, 1, sample(11, 10)).commit) << "an earlier life reported it";
  EXPECT_EQ(watch.sampled(0, 1, sample(21, 20)).commit, (Commit{1, 20}));
  EXPECT_FALSE(watch.sampled(1, 1, sample(21, 20)).commit) << "the other rank saw the same one";
  EXPECT_EQ(watch.committed(1, 30), (Commit{1, 30})) << "from an exit record";
  EXPECT_FALSE(watch.committed(1, 0));
  EXPECT_EQ(watch.committed(2, 25), (Commit{2, 25})) << "a later generation starts lower";
  EXPECT_FALSE(watch.committed(1, 40)) << "the chain has gone on without it";
}

std::vector<BadStep> bad_steps(uint64_t first, uint64_t last) {
  std::vector<BadStep> steps;
  for (uint64_t number = first; number <= last; ++number) {
    steps.emplace_back();
    steps.back().number = number;
    steps.back().step = 10 * number;
  }
  return steps;
}

TEST(ProgressWatch, BadStepsAreToldOnceAndMissedOnesCounted) {
  ProgressWatch watch(Reported{{}, BadStepMark{1, 2}});
  const auto first = watch.bad_step(1, 0, bad_steps(1, 3));
  ASSERT_EQ(first.size(), 1U) << "an earlier life reported two";
  EXPECT_EQ(first[0].mark, (BadStepMark{1, 3}));
  EXPECT_EQ(first[0].step.step, 30U);
  EXPECT_EQ(first[0].missed, 0U);
  EXPECT_TRUE(watch.bad_step(1, 0, bad_steps(1, 3)).empty());
  const auto later = watch.bad_step(1, 0, bad_steps(6, 7));
  ASSERT_EQ(later.size(), 2U);
  EXPECT_EQ(later[0].missed, 2U) << "the page no longer held 4 and 5";
  EXPECT_EQ(later[1].missed, 0U);
  EXPECT_TRUE(watch.bad_step(2, 1, bad_steps(1, 1)).empty()) << "rank 0 speaks for all";
  EXPECT_EQ(watch.bad_step(2, 0, bad_steps(1, 1)).size(), 1U) << "a new generation counts anew";
  EXPECT_TRUE(watch.bad_step(1, 0, bad_steps(8, 8)).empty()) << "the chain has gone on without it";
}

TEST(SignsOfLife, CeaseWhereNoneComesInTime) {
  SignsOfLife signs;
  EXPECT_FALSE(signs.have_ceased(1'000'000)) << "nobody is watched";
  signs.seen(1'000, 1'500);
  EXPECT_EQ(signs.look_at_ms(), 2'500);
  EXPECT_FALSE(signs.have_ceased(2'499));
  signs.seen(2'499, 1'500);
  EXPECT_FALSE(signs.have_ceased(2'500));
  EXPECT_TRUE(signs.have_ceased(3'999 + SignsOfLife::kLateMs - 1));
  signs.forget();
  EXPECT_EQ(signs.look_at_ms(), INT64_MAX);
}

// The whole machine stood still, or the job was suspended, for however long and as often as it is.
TEST(SignsOfLife, OfTimeThatNobodyWatchedNothingIsConcluded) {
  SignsOfLife signs;
  signs.seen(1'000, 1'500);
  int64_t now_ms = 2'500;
  for (const int64_t late_ms : {SignsOfLife::kLateMs, int64_t{2'000}, int64_t{3'600'000}}) {
    now_ms += late_ms;
    EXPECT_FALSE(signs.have_ceased(now_ms)) << late_ms;
    EXPECT_EQ(signs.look_at_ms(), now_ms + SignsOfLife::kTurnMs);
    now_ms = signs.look_at_ms();
  }
  EXPECT_TRUE(signs.have_ceased(now_ms)) << "it had its turns, and showed no sign";
}

TEST(Patience, GrowsUntilAControllerWelcomes) {
  Patience patience;
  int64_t last = patience.next(2);
  EXPECT_EQ(last, Patience::kFirstMs);
  for (int i = 0; i < 10; ++i) {
    const int64_t next = patience.next(2);
    EXPECT_EQ(next, std::min(2 * last, Patience::kLongestMs));
    last = next;
  }
  EXPECT_EQ(last, Patience::kLongestMs);
  patience.reset();
  EXPECT_EQ(patience.next(2), Patience::kFirstMs);
}

TEST(Patience, LastsForTheHandshakesOfAllNodes) {
  Patience patience;
  EXPECT_EQ(patience.next(500), 500 * Patience::kHandshakeMs);
  EXPECT_EQ(patience.next(500), 1'000 * Patience::kHandshakeMs);
  EXPECT_EQ(patience.next(12'500), Patience::kLongestMs);
  EXPECT_EQ(patience.next(2), Patience::kLongestMs);
}

}  // namespace
}  // namespace hpctl::agent
