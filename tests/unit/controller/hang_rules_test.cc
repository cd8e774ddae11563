// SPDX-License-Identifier: Apache-2.0
// recovery.hang_rules over the reports of four ranks: a hang is told only when every rank has been
// heard since the limit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/controller/progress_reports.h"

namespace hpctl {
namespace {

constexpr int64_t kNever = -1;

class HangRules : public ::testing::Test {
 protected:
  void begin(HangAction action) {
    job_ = running_job(1, 0);
    job_.spec.train.reset();
    job_.spec.recovery.hang_rules = {{"loss=", 10'000, 60'000, action}};
    job_.state = core::JobState::kRunning;
    table_.observe(job_, 0);
  }
  // Rank 0 printed a line that matches so long ago; the others never do.
  void hear(int64_t age_ms, int64_t now_ms) {
    table_.report(job_.id, "n0", {prints(0, age_ms), prints(1, kNever)}, now_ms);
    hear_others(now_ms);
  }
  void hear_others(int64_t now_ms) {
    table_.report(job_.id, "n1", {prints(2, kNever), prints(3, kNever)}, now_ms);
  }
  static RankReport prints(int32_t rank, int64_t age_ms) {
    RankReport report;
    report.rank = rank;
    report.generation = 1;
    report.line_ages_ms = {age_ms};
    return report;
  }
  std::string notes(int64_t now_ms) {
    std::string all;
    for (const core::ControllerNoted& note : table_.take_notes(now_ms)) all += note.what + "\n";
    return all;
  }

  ProgressTable table_;
  core::Job job_;
};

TEST_F(HangRules, SilenceOfEveryRankIsAHangOfNobody) {
  begin(HangAction::kRestart);
  hear(0, 1'000);
  hear(10'000, 11'000);
  EXPECT_TRUE(table_.take_hangs(11'500).empty()) << "the reports say no more than the limit";
  hear(10'001, 11'001);
  const auto hangs = table_.take_hangs(11'001);
  ASSERT_EQ(hangs.size(), 1U);
  EXPECT_EQ(hangs[0].node, "");
  EXPECT_EQ(hangs[0].rank, Rank{-1});
  EXPECT_EQ(hangs[0].evidence,
            "no rank has printed a line that matches \"loss=\" for 10 s (recovery.hang_rules: "
            "within 10s)");
  EXPECT_TRUE(table_.take_hangs(20'000).empty()) << "once per generation";
  EXPECT_EQ(notes(20'000), "");
}

// The network between a node and the controller may be away, and its ranks print on.
TEST_F(HangRules, ARankThatIsNotHeardMayHavePrinted) {
  begin(HangAction::kRestart);
  hear(0, 1'000);
  hear_others(30'000);
  EXPECT_TRUE(table_.take_hangs(30'000).empty());
  table_.report(job_.id, "n0", {prints(0, 300), prints(1, kNever)}, 31'000);
  EXPECT_TRUE(table_.take_hangs(31'000).empty());
}

TEST_F(HangRules, ARankThatHasNotReportedProvesNothing) {
  begin(HangAction::kRestart);
  hear_others(90'000);
  EXPECT_TRUE(table_.take_hangs(90'000).empty());
}

TEST_F(HangRules, NothingIsJudgedWhereAnAgentTellsNoLines) {
  begin(HangAction::kRestart);
  hear(0, 1'000);
  RankReport older = prints(0, 0);
  older.line_ages_ms.clear();
  table_.report(job_.id, "n0", {older, prints(1, kNever)}, 90'000);
  hear_others(90'000);
  EXPECT_TRUE(table_.take_hangs(90'000).empty());
}

TEST_F(HangRules, TheFirstLineIsAwaitedLonger) {
  begin(HangAction::kRestart);
  hear(kNever, 60'000);
  EXPECT_TRUE(table_.take_hangs(60'000).empty());
  hear(kNever, 60'001);
  const auto hangs = table_.take_hangs(60'001);
  ASSERT_EQ(hangs.size(), 1U);
  EXPECT_NE(hangs[0].evidence.find("in the 60 s since the ranks started"), std::string::npos);
}

TEST_F(HangRules, ASuspensionDoesNotCount) {
  begin(HangAction::kRestart);
  hear(0, 1'000);
  job_.suspended_since_ms = 2'000;
  table_.observe(job_, 2'000);
  hear(99'000, 100'000);
  EXPECT_TRUE(table_.take_hangs(100'000).empty());
  job_.suspended_since_ms = 0;
  table_.observe(job_, 100'000);
  hear(109'000, 110'000);
  EXPECT_TRUE(table_.take_hangs(110'000).empty());
  hear(109'001, 110'001);
  EXPECT_EQ(table_.take_hangs(110'001).size(), 1U);
}

// A controller whose loop stood still has heard nobody meanwhile.
TEST_F(HangRules, AStallOfTheControllerDoesNotCount) {
  begin(HangAction::kRestart);
  hear(0, 1'000);
  table_.rearm(50'000);
  hear(50'000, 51'000);
  EXPECT_TRUE(table_.take_hangs(51'000).empty());
}

TEST_F(HangRules, AWarningBeginsEndsAndRestartsNothing) {
  begin(HangAction::kWarn);
  hear(0, 1'000);
  EXPECT_EQ(notes(1'000), "");
  hear(11'000, 12'000);
  EXPECT_EQ(notes(12'000),
            "may hang: no rank has printed a line that matches \"loss=\" for 11 s "
            "(recovery.hang_rules: within 10s)\n");
  EXPECT_NE(table_.of(job_.id).hang_warning, "");
  EXPECT_EQ(notes(12'100), "") << "told once";
  EXPECT_NE(table_.of(job_.id).hang_warning, "");
  EXPECT_TRUE(table_.take_hangs(12'100).empty());
  hear(0, 13'000);
  EXPECT_EQ(notes(13'000), "a rank has printed a line again that matches \"loss=\"\n");
  EXPECT_EQ(table_.of(job_.id).hang_warning, "");
}

// The history grows for ever, and some rules are broken every minute.
TEST_F(HangRules, AWarningThatComesOftenIsNotedSeldom) {
  begin(HangAction::kWarn);
  size_t noted = 0;
  for (int64_t now_ms = 1'000; now_ms < 3'600'000; now_ms += 20'000) {
    hear(0, now_ms);
    noted += notes(now_ms).empty() ? 0 : 1;
    EXPECT_EQ(table_.of(job_.id).hang_warning, "");
    hear(15'000, now_ms + 15'000);
    noted += notes(now_ms + 15'000).empty() ? 0 : 1;
    EXPECT_NE(table_.of(job_.id).hang_warning, "") << "it is shown each time";
  }
  EXPECT_LE(noted, 14U) << "of 360";
  EXPECT_GE(noted, 10U);
}

TEST_F(HangRules, AWarningTellsForHowLong) {
  begin(HangAction::kWarn);
  hear(0, 1'000);
  hear(11'000, 12'000);
  EXPECT_NE(notes(12'000), "");
  hear(3'600'000, 3'601'000);
  EXPECT_EQ(notes(3'601'000), "");
  EXPECT_NE(table_.of(job_.id).hang_warning.find("for 3600 s"), std::string::npos)
      << table_.of(job_.id).hang_warning;
}

TEST_F(HangRules, AWarningEndsWithItsGeneration) {
  begin(HangAction::kWarn);
  hear(0, 1'000);
  hear(11'000, 12'000);
  EXPECT_NE(notes(12'000), "");
  job_.generation = Generation{2};
  table_.observe(job_, 13'000);
  EXPECT_EQ(notes(13'000), "");
  EXPECT_EQ(table_.of(job_.id).hang_warning, "");
}

}  // namespace
}  // namespace hpctl
