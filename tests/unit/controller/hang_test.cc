// SPDX-License-Identifier: Apache-2.0
// Hangs: when they are found, and whom they are blamed on.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/controller/progress_reports.h"

namespace hpctl {
namespace {

TEST(Hang, AHangIsBlamedOnTheRankThatBeganTheFewestCollectives) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  table.report(job.id, "n0", {at_step(0, 1, 5, 57), at_step(1, 1, 5, 57)}, 1'000);
  table.report(job.id, "n1", {at_step(2, 1, 5, 52), at_step(3, 1, 5, 57)}, 1'000);
  job.state = core::JobState::kRunning;
  table.observe(job, 1'000);
  EXPECT_TRUE(table.take_hangs(1'000 + core::kHangFloorMs).empty());
  const auto hangs = table.take_hangs(1'001 + core::kHangFloorMs);
  ASSERT_EQ(hangs.size(), 1U);
  EXPECT_EQ(hangs[0].rank, Rank{2});
  EXPECT_EQ(hangs[0].node, "n1");
  EXPECT_EQ(
      hangs[0].evidence,
      "no step completed for 60 s after step 5; rank 2 (pid 0) began collective 52, others are "
      "waiting in 57 (phase training)");
  EXPECT_TRUE(table.take_hangs(10 * core::kHangFloorMs).empty()) << "once per generation";
}

// A wait longer than the limit ended, and the job was taken for hung before the step was complete.
TEST(Hang, IsCountedFromTheEndOfAWaitForStorage) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  job.spec.recovery.hang_timeout_ms = 8'000;
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  const auto report = [&](uint64_t failures, int64_t now_ms) {
    RankReport waiting = at_step(1, 1, 5, 57);
    waiting.figures.emplace().storage_failures = failures;
    table.report(job.id, "n0", {at_step(0, 1, 5, 57), waiting}, now_ms);
  };
  report(0, 1'000);
  report(1, 2'000);
  report(1, 30'000);
  EXPECT_TRUE(table.take_hangs(30'000).empty()) << "it waits for storage";
  report(0, 31'000);
  EXPECT_TRUE(table.take_hangs(31'001).empty());
  report(0, 39'000);
  EXPECT_TRUE(table.take_hangs(39'000).empty());
  EXPECT_EQ(table.take_hangs(39'001).size(), 1U);
}

// All four began the same collective; only the states of their processes differ.
core::HangDetected hang_with_states(const std::vector<std::string>& states) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  for (size_t i = 0; i < states.size(); ++i) {
    RankReport report = at_step(static_cast<int32_t>(i), 1, 5, 57);
    report.pid = 100 + i;
    report.process_state = states[i];
    table.report(job.id, "n" + std::to_string(i / 2), {report}, 0);
  }
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  auto hangs = table.take_hangs(1 + core::kHangFloorMs);
  return hangs.empty() ? core::HangDetected{} : hangs[0];
}

TEST(Hang, AStoppedProcessIsBlamedBeforeAnyNumber) {
  const auto stopped = hang_with_states({"S", "D", "R", "T"});
  EXPECT_EQ(stopped.rank, Rank{3});
  EXPECT_EQ(stopped.node, "n1");
  EXPECT_EQ(stopped.evidence,
            "no step completed for 60 s after step 5; rank 3 (pid 103) is stopped (state T) and "
            "began collective 57 (phase training)");
  const auto stuck = hang_with_states({"S", "R", "D", "S"});
  EXPECT_EQ(stuck.rank, Rank{2});
  EXPECT_NE(stuck.evidence.find("rank 2 (pid 102) waits uninterruptibly"), std::string::npos)
      << stuck.evidence;
}

TEST(Hang, AStoppedProcessIsFoundWithinASecondUnlessALimitWasSet) {
  const auto silent_until = [](const std::vector<std::string>& states, int64_t configured_ms) {
    ProgressTable table;
    core::Job job = running_job(1, 0);
    job.spec.recovery.hang_timeout_ms = configured_ms;
    job.state = core::JobState::kRunning;
    table.observe(job, 0);
    for (size_t i = 0; i < states.size(); ++i) {
      RankReport report = at_step(static_cast<int32_t>(i), 1, 5, 57);
      report.process_state = states[i];
      table.report(job.id, "n0", {report}, 0);
    }
    for (const int64_t limit : {core::kStoppedLimitMs, int64_t{5'000}, core::kHangFloorMs}) {
      if (!table.take_hangs(limit + 1).empty()) return limit;
    }
    return int64_t{0};
  };
  EXPECT_EQ(silent_until({"S", "T", "S"}, 0), core::kStoppedLimitMs);
  EXPECT_EQ(silent_until({"S", "T", "S"}, 5'000), 5'000);
  EXPECT_EQ(silent_until({"S", "t", "S"}, 0), core::kHangFloorMs) << "in a debugger";
  EXPECT_EQ(silent_until({"T", "T", "T"}, 0), core::kHangFloorMs) << "by an operator";
}

TEST(Hang, AHangOfRanksThatAreAlikeBlamesNobody) {
  for (const auto& states :
       {std::vector<std::string>{"S", "R", "R", "S"}, {"D", "D", "D"}, {"R"}}) {
    const auto alike = hang_with_states(states);
    EXPECT_EQ(alike.rank, Rank{-1});
    EXPECT_EQ(alike.node, "");
    EXPECT_NE(alike.evidence.find("began collective 57"), std::string::npos) << alike.evidence;
  }
}

TEST(Hang, SuspectsOnSeveralNodesAreNamedAndNoneIsBlamed) {
  const auto hang = hang_with_states({"S", "T", "T", "S"});
  EXPECT_EQ(hang.rank, Rank{-1});
  EXPECT_EQ(hang.node, "");
  EXPECT_NE(hang.evidence.find("ranks 1, 2 are stopped"), std::string::npos) << hang.evidence;
  EXPECT_EQ(hang_with_states({"T", "T", "S", "S"}).node, "n0");
}

RankReport told_step(int32_t rank, uint64_t step) {
  RankReport report = at_step(rank, 1, step, 0);
  report.loss = NAN;
  if (step == 0) report.phase = static_cast<uint32_t>(WorkerPhase::kStarting);
  return report;
}

// A command whose ranks have told these steps, 0 = none, and then nothing for longer than `limit`.
core::HangDetected hang_of_command(const std::vector<uint64_t>& steps, int64_t limit_ms) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  job.spec.train.reset();
  job.spec.recovery.hang_timeout_ms = limit_ms;
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto rank = static_cast<int32_t>(i);
    table.report(job.id, "n" + std::to_string(i / 2), {told_step(rank, steps[i])}, 0);
  }
  EXPECT_TRUE(table.take_hangs(limit_ms > 0 ? limit_ms : core::kCommandHangFloorMs).empty());
  auto hangs = table.take_hangs((limit_ms > 0 ? limit_ms : core::kCommandHangFloorMs) + 1);
  return hangs.empty() ? core::HangDetected{} : hangs[0];
}

TEST(Hang, ACommandThatTellsItsStepsHangsToo) {
  const auto behind = hang_of_command({18, 18, 17, 18}, 5'000);
  EXPECT_EQ(behind.rank, Rank{2});
  EXPECT_EQ(behind.node, "n1");
  EXPECT_EQ(behind.evidence,
            "no step completed for 5 s after step 18; rank 2 (pid 0) completed step 17, others "
            "completed 18");
  EXPECT_EQ(hang_of_command({18, 18, 18, 18}, 0).evidence,
            "no step completed for 600 s after step 18; all ranks completed step 18: nothing "
            "distinguishes them; no rank is blamed");
  // Most programs let rank 0 tell it.
  const auto one_tells = hang_of_command({18, 0, 0, 0}, 5'000);
  EXPECT_EQ(one_tells.rank, Rank{-1});
  EXPECT_EQ(one_tells.evidence,
            "no step completed for 5 s after step 18; all ranks that tell their steps completed "
            "step 18: nothing distinguishes them; no rank is blamed");
  EXPECT_EQ(hang_of_command({0, 0, 0, 0}, 5'000).evidence, "") << "it tells none";
}

// As fp16's overflows and evaluations do; whoever waits for another rank begins no more than one.
TEST(Hang, StepsThatAreLeftOutAreNoHangWhileAllRanksGoOn) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  job.spec.recovery.hang_timeout_ms = 5'000;
  table.observe(job, 0);
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  for (uint64_t i = 0; i < 10; ++i) {
    const int64_t now_ms = static_cast<int64_t>(i) * 4'000;
    table.report(job.id, "n0", {at_step(0, 1, 5, 50 + i)}, now_ms);
    table.report(job.id, "n1", {at_step(1, 1, 5, 51 + i)}, now_ms);
    EXPECT_TRUE(table.take_hangs(now_ms + 4'000).empty()) << i;
  }
  table.report(job.id, "n1", {at_step(1, 1, 5, 61)}, 40'000);  // rank 0 stays at 59
  EXPECT_TRUE(table.take_hangs(41'000).empty());
  const auto hangs = table.take_hangs(41'001);
  ASSERT_EQ(hangs.size(), 1U);
  EXPECT_EQ(hangs[0].rank, Rank{0});
}

TEST(Hang, SlowStepsAndSavingHaveLongerLimits) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  RankReport slow = at_step(0, 1, 5, 57);
  slow.step_ns = 40'000'000'000;  // 3 x 40 s
  table.report(job.id, "n0", {slow}, 0);
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  EXPECT_TRUE(table.take_hangs(119'000).empty());
  slow.phase = static_cast<uint32_t>(WorkerPhase::kSaving);
  table.report(job.id, "n0", {slow}, 0);
  EXPECT_TRUE(table.take_hangs(core::kSavingLimitMs).empty());
  EXPECT_EQ(table.take_hangs(core::kSavingLimitMs + 1).size(), 1U);
}

// Rank 2 computes for ever, the others wait for it in their next collective.
std::vector<RankReport> plain_hang() {
  std::vector<RankReport> ranks;
  for (int32_t rank = 0; rank < 4; ++rank) {
    RankReport& report = ranks.emplace_back(at_step(rank, 1, 5, rank == 2 ? 52 : 57));
    report.computing = true;
    report.open_collectives = 1;
    report.process_state = rank == 2 ? "R" : "S";
  }
  return ranks;
}

// Reports these ranks every so often, and says when that was taken for a hang; 0 = not before the
// usual limit.
class Watched {
 public:
  explicit Watched(core::Job job = running_job(1, 0)) : job_(std::move(job)) {
    table_.observe(job_, now_ms_);
  }
  int64_t found_after(const std::vector<RankReport>& ranks, int64_t report_every_ms = 100) {
    const int64_t begin_ms = now_ms_;
    job_.state = core::JobState::kRunning;
    table_.observe(job_, now_ms_);
    for (; now_ms_ <= begin_ms + core::kHangFloorMs; now_ms_ += report_every_ms) {
      report(ranks);
      const auto hangs = table_.take_hangs(now_ms_);
      if (hangs.empty()) continue;
      found_ = hangs[0];
      return now_ms_ - begin_ms;
    }
    return 0;
  }
  void report(const std::vector<RankReport>& ranks) {
    for (RankReport report : ranks) {
      report.generation = job_.generation.value;
      table_.report(job_.id, "n" + std::to_string(report.rank / 2), {report}, now_ms_);
    }
  }
  void begin_next_generation() {
    job_.generation.value += 1;
    job_.state = core::JobState::kStarting;
    table_.observe(job_, now_ms_);
  }
  void pass(int64_t ms) { now_ms_ += ms; }
  const core::HangDetected& found() const { return found_; }

 private:
  ProgressTable table_;
  core::Job job_;
  int64_t now_ms_ = 0;
  core::HangDetected found_;
};

constexpr int64_t kSoon = core::kPlainHangFloorMs + 100;

TEST(Hang, ARankThatComputesWhileAllOthersWaitIsFoundSooner) {
  Watched watched;
  EXPECT_EQ(watched.found_after(plain_hang()), kSoon);
  EXPECT_EQ(watched.found().rank, Rank{2});
  EXPECT_EQ(watched.found().node, "n1");
  EXPECT_EQ(watched.found().evidence,
            "no step completed for 5 s after step 5; rank 2 (pid 0) began collective 52, others "
            "are waiting in 57 (phase training)");
  // Both ranks of a node.
  auto both = plain_hang();
  both[3] = both[2];
  both[3].rank = 3;
  EXPECT_EQ(Watched().found_after(both), kSoon);
  // In a lock that nobody gives back.
  auto waits = plain_hang();
  waits[2].process_state = "S";
  EXPECT_EQ(Watched().found_after(waits), kSoon);
}

// Rank = 2 pp + tp, on two nodes. Rank 3 computes. Rank 2 waits for it in tp, ranks 0 and 1 wait
// for the gradients of the last stage.
std::vector<RankReport> stage_hang() {
  std::vector<RankReport> ranks;
  for (int32_t rank = 0; rank < 4; ++rank) {
    RankReport& report = ranks.emplace_back(at_step(rank, 1, 5, rank < 2 ? 40 : 30));
    report.computing = true;
    report.open_collectives = 1;
    report.process_state = rank == 3 ? "R" : "S";
    report.groups.push_back({GroupKind::kWorld, 0, 3, 3, 3});
  }
  const GroupReport tp0 = {GroupKind::kTensor, 0, 1, 20, 20};
  ranks[0].groups.push_back(tp0);
  ranks[1].groups.push_back(tp0);
  ranks[2].groups.push_back({GroupKind::kTensor, 2, 3, 11, 10, true});
  ranks[3].groups.push_back({GroupKind::kTensor, 2, 3, 10, 10});
  for (const int32_t first : {0, 1}) {
    const auto sender = static_cast<size_t>(first + 2);
    ranks[sender].groups.push_back({GroupKind::kEdge, first + 2, first, 5, 5});
    ranks[static_cast<size_t>(first)].groups.push_back(
        {GroupKind::kEdge, first + 2, first, 6, 5, true});
  }
  ranks[3].collective = 31;
  return ranks;
}

// The totals blame rank 2, which began the fewest collectives.
TEST(Hang, WhoeverIsWaitedForIsFoundByTheGroupsOfRanks) {
  Watched watched;
  EXPECT_EQ(watched.found_after(stage_hang()), kSoon);
  EXPECT_EQ(watched.found().rank, Rank{3});
  EXPECT_EQ(watched.found().node, "n1");
  EXPECT_EQ(watched.found().evidence,
            "no step completed for 5 s after step 5; rank 3 (pid 0) waits for nobody, and others "
            "wait: rank 1 waits in collective 6 of the edge from rank 3 to rank 1, rank 2 waits in "
            "collective 11 of tp of ranks 2 to 3 (phase training)");
  auto without = stage_hang();
  for (RankReport& rank : without) rank.groups.clear();
  Watched older;
  EXPECT_EQ(older.found_after(without), kSoon);
  EXPECT_EQ(older.found().rank, Rank{2}) << "an older agent tells the totals alone";
}

TEST(Hang, TheSlowestOfTheRecentStepsDecidesHowMuchSooner) {
  Watched watched;
  auto ranks = plain_hang();
  ranks[0].step_ns = 4'000'000'000;
  watched.report(ranks);
  ranks[0].step = 6;
  ranks[0].step_ns = 100'000'000;
  EXPECT_EQ(watched.found_after(ranks), 12'100);
}

// What each of them may be waiting for takes long at times.
TEST(Hang, AnythingLessPlainHasTheUsualLimit) {
  const auto found_after = [](const auto& change) {
    auto ranks = plain_hang();
    change(ranks);
    return Watched().found_after(ranks);
  };
  using Ranks = std::vector<RankReport>;
  EXPECT_EQ(found_after([](Ranks&) {}), kSoon);
  EXPECT_EQ(found_after([](Ranks& ranks) { ranks[2].computing = false; }), 0)
      << "data, the optimizer, an evaluation";
  for (const WorkerPhase phase :
       {WorkerPhase::kStarting, WorkerPhase::kLoading, WorkerPhase::kRendezvous,
        WorkerPhase::kSaving, WorkerPhase::kFinished}) {
    for (const size_t rank : {size_t{0}, size_t{2}}) {
      EXPECT_EQ(
          found_after([&](Ranks& ranks) { ranks[rank].phase = static_cast<uint32_t>(phase); }), 0);
    }
  }
  for (const char* state : {"D", "t", ""}) {
    EXPECT_EQ(found_after([&](Ranks& ranks) { ranks[2].process_state = state; }), 0) << state;
  }
  EXPECT_EQ(found_after([](Ranks& ranks) { ranks[1].open_collectives = 0; }), 0)
      << "one does not wait";
  EXPECT_EQ(found_after([](Ranks& ranks) { ranks[1].collective = 52; }), 0) << "two nodes";
  EXPECT_EQ(found_after([](Ranks& ranks) { ranks[2].collective = 57; }), 0) << "all alike";
  EXPECT_EQ(found_after([](Ranks& ranks) { ranks.pop_back(); }), 0) << "one is not known";
  EXPECT_EQ(found_after([](Ranks& ranks) {
              for (RankReport& rank : ranks) rank.step = 0;
            }),
            0)
      << "the first step";
  core::Job patient = running_job(1, 0);
  patient.spec.recovery.hang_timeout_ms = 30'000;
  EXPECT_EQ(Watched(patient).found_after(plain_hang()), 30'100) << "as it was set";
}

TEST(Hang, TimeInWhichNothingWasReportedIsNotHeldAgainstARank) {
  Watched watched;
  EXPECT_EQ(watched.found_after(plain_hang(), 8'000), 0) << "a machine that has no time";
  Watched paused;
  paused.report(plain_hang());
  paused.pass(40'000);
  EXPECT_EQ(paused.found_after(plain_hang()), kSoon - core::kMostPerReportMs);
}

// The agent of n1 gets no time while both nodes train on; then rank 0 hangs.
TEST(Hang, ANodeThatWasSilentBeforeTheOthersStoodStillIsNotBlamed) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  job.spec.recovery.hang_timeout_ms = 5'000;
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  table.report(job.id, "n0", {at_step(0, 1, 5, 52), at_step(1, 1, 5, 52)}, 0);
  table.report(job.id, "n1", {at_step(2, 1, 5, 52), at_step(3, 1, 5, 52)}, 0);
  for (int64_t now_ms = 1'000; now_ms < 6'100; now_ms += 100) {
    EXPECT_TRUE(table.take_hangs(now_ms).empty());
    table.report(job.id, "n0", {at_step(0, 1, 6, 62), at_step(1, 1, 6, 63)}, now_ms);
  }
  const auto hangs = table.take_hangs(6'100);
  ASSERT_EQ(hangs.size(), 1U);
  EXPECT_EQ(hangs[0].rank, Rank{0}) << hangs[0].evidence;
  EXPECT_EQ(hangs[0].node, "n0");
  EXPECT_NE(hangs[0].evidence.find("left out, without a report since: ranks 2, 3"),
            std::string::npos)
      << hangs[0].evidence;
}

// Three faults in a row quarantine a node: what the same mistake would be made of grows.
TEST(Hang, EachHangFoundSoonerDoublesTheLimitForAnHour) {
  Watched watched;
  for (const int64_t factor : {1, 2, 4, 8}) {
    EXPECT_EQ(watched.found_after(plain_hang()), factor * core::kPlainHangFloorMs + 100);
    watched.begin_next_generation();
  }
  watched.pass(core::kPlainHangMemoryMs);
  EXPECT_EQ(watched.found_after(plain_hang()), kSoon);
}

TEST(Hang, AConfiguredLimitHolds) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  job.spec.recovery.hang_timeout_ms = 5'000;
  table.observe(job, 0);
  table.report(job.id, "n0", {at_step(0, 1, 5, 57)}, 0);
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  EXPECT_TRUE(table.take_hangs(5'000).empty());
  EXPECT_EQ(table.take_hangs(5'001).size(), 1U);
}

}  // namespace
}  // namespace hpctl
