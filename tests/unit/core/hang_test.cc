// SPDX-License-Identifier: Apache-2.0
// The table of controller/core/hang.h, row by row.
#include "controller/core/hang.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hpctl::core {
namespace {

using Hang = HangVerdict::Kind;

// Rank 2 of two on each node computes for ever, the others wait for it in their next collective.
JobSight plain() {
  JobSight job;
  job.trains = true;
  job.world_size = 4;
  job.step = 5;
  job.median_step_ns = job.slowest_step_ns = 100'000'000;
  for (int32_t i = 0; i < job.world_size; ++i) {
    RankSight& rank = job.ranks.emplace_back();
    rank.rank = Rank{i};
    rank.node = i < 2 ? "n0" : "n1";
    rank.pid = uint64_t{100} + static_cast<uint64_t>(i);
    rank.step = 5;
    rank.collective = i == 2 ? 52 : 57;
    rank.open_collectives = i == 2 ? 0 : 1;
    rank.phase = WorkerPhase::kTraining;
    rank.computing = true;
    rank.process_state = i == 2 ? "R" : "S";
  }
  return job;
}

struct FoundHang {
  Hang kind = Hang::kNothing;
  int64_t after_ms = 0;
  HangVerdict verdict;
};

// As the controller's table asks, before it copies any rank.
bool is_looked_at(JobSight job) {
  const bool any_stopped = std::any_of(job.ranks.begin(), job.ranks.end(),
                                       [](const auto& rank) { return rank.process_state == "T"; });
  int64_t quiet_ms = job.still_ms;
  for (const RankSight& rank : job.ranks) quiet_ms = std::max(quiet_ms, rank.still_ms);
  job.ranks.clear();
  return may_hang(job, quiet_ms, any_stopped);
}

// When it is first judged to hang, if nothing changes.
FoundHang first_found(JobSight job) {
  for (const int64_t limit : {kStoppedLimitMs, int64_t{3'000}, kPlainHangFloorMs, int64_t{6'000},
                              2 * kPlainHangFloorMs, 4 * kPlainHangFloorMs, 8 * kPlainHangFloorMs,
                              kHangFloorMs, int64_t{90'000}, kSavingLimitMs, int64_t{900'000}}) {
    for (const int64_t still_ms : {limit, limit + 1}) {
      job.still_ms = still_ms;
      for (RankSight& rank : job.ranks) rank.still_ms = still_ms;
      const HangVerdict verdict = judge_hang(job);
      if (verdict.kind == Hang::kNothing) continue;
      EXPECT_TRUE(is_looked_at(job)) << "after " << still_ms << " ms";
      return {verdict.kind, still_ms, verdict};
    }
  }
  return {};
}

struct HangRow {
  const char* what;
  void (*change)(JobSight& job);
  Hang kind;
  int64_t limit_ms;
  const char* node;            // "" = nobody is blamed
  bool is_of_several = false;  // ranks of the node: none of them is blamed by itself
};

void let_all_wait(JobSight& job) {
  job.ranks[2].collective = 57;
  job.ranks[2].open_collectives = 1;
}

const HangRow kHangRows[] = {
    {"plain", [](JobSight&) {}, Hang::kHangsPlainly, kPlainHangFloorMs, "n1"},
    {"in a lock that nobody gives back", [](JobSight& job) { job.ranks[2].process_state = "S"; },
     Hang::kHangsPlainly, kPlainHangFloorMs, "n1"},
    {"both ranks of its node",
     [](JobSight& job) {
       job.ranks[3] = job.ranks[2];
       job.ranks[3].rank = Rank{3};
     },
     Hang::kHangsPlainly, kPlainHangFloorMs, "n1", true},
    {"a recent step took 2 s", [](JobSight& job) { job.slowest_step_ns = 2'000'000'000; },
     Hang::kHangsPlainly, 6'000, "n1"},
    {"one was found so before", [](JobSight& job) { job.plain_hangs = 1; }, Hang::kHangsPlainly,
     2 * kPlainHangFloorMs, "n1"},
    {"three were", [](JobSight& job) { job.plain_hangs = 3; }, Hang::kHangsPlainly,
     8 * kPlainHangFloorMs, "n1"},
    {"many were: as if it were not plain", [](JobSight& job) { job.plain_hangs = 1'000; },
     Hang::kHangs, kHangFloorMs, "n1"},
    {"a limit was set", [](JobSight& job) { job.limit_ms = 3'000; }, Hang::kHangs, 3'000, "n1"},
    {"no step was timed", [](JobSight& job) { job.median_step_ns = job.slowest_step_ns = 0; },
     Hang::kHangs, kHangFloorMs, "n1"},
    {"a rank has not reported", [](JobSight& job) { job.world_size = 5; }, Hang::kHangs,
     kHangFloorMs, "n1"},
    {"reads data, updates or evaluates", [](JobSight& job) { job.ranks[2].computing = false; },
     Hang::kHangs, kHangFloorMs, "n1"},
    {"waits for a file", [](JobSight& job) { job.ranks[2].process_state = "D"; }, Hang::kHangs,
     kHangFloorMs, "n1"},
    {"is in a debugger", [](JobSight& job) { job.ranks[2].process_state = "t"; }, Hang::kHangs,
     kHangFloorMs, "n1"},
    {"its state is not known", [](JobSight& job) { job.ranks[2].process_state = ""; }, Hang::kHangs,
     kHangFloorMs, "n1"},
    {"another one does not wait", [](JobSight& job) { job.ranks[1].open_collectives = 0; },
     Hang::kHangs, kHangFloorMs, "n1"},
    {"suspects on two nodes", [](JobSight& job) { job.ranks[1].collective = 52; }, Hang::kHangs,
     kHangFloorMs, ""},
    {"all alike", let_all_wait, Hang::kHangs, kHangFloorMs, ""},
    {"all alike but in the kernel",
     [](JobSight& job) {
       job.ranks[2].collective = 57;
       job.ranks[2].process_state = "D";
     },
     Hang::kHangs, kHangFloorMs, "n1"},
    {"slow steps",
     [](JobSight& job) {
       job.ranks[2].computing = false;
       job.median_step_ns = 30'000'000'000;
     },
     Hang::kHangs, 90'000, "n1"},
    {"its process is stopped", [](JobSight& job) { job.ranks[2].process_state = "T"; },
     Hang::kHangs, kStoppedLimitMs, "n1"},
    {"another one is stopped, and is behind nobody",
     [](JobSight& job) {
       let_all_wait(job);
       job.ranks[0].process_state = "T";
     },
     Hang::kHangs, kStoppedLimitMs, "n0"},
    {"stopped, and a limit was set",
     [](JobSight& job) {
       job.ranks[2].process_state = "T";
       job.limit_ms = 3'000;
     },
     Hang::kHangs, 3'000, "n1"},
    {"stopped while another one saves",
     [](JobSight& job) {
       job.ranks[2].process_state = "T";
       job.ranks[0].phase = WorkerPhase::kSaving;
     },
     Hang::kHangs, kStoppedLimitMs, "n1"},
    {"all are stopped",
     [](JobSight& job) {
       for (RankSight& rank : job.ranks) rank.process_state = "T";
     },
     Hang::kHangs, kHangFloorMs, ""},
    {"a rank saves", [](JobSight& job) { job.ranks[2].phase = WorkerPhase::kSaving; }, Hang::kHangs,
     kSavingLimitMs, "n1"},
    {"a rank saves, and a shorter limit was set",
     [](JobSight& job) {
       job.ranks[0].phase = WorkerPhase::kSaving;
       job.limit_ms = 3'000;
     },
     Hang::kHangs, kSavingLimitMs, "n1"},
    {"a rank saves, and a longer limit was set",
     [](JobSight& job) {
       job.ranks[0].phase = WorkerPhase::kFinished;
       job.limit_ms = 900'000;
     },
     Hang::kHangs, 900'000, "n1"},
    {"a command", [](JobSight& job) { job.trains = false; }, Hang::kHangs, kCommandHangFloorMs,
     "n1"},
    {"a command with slow steps",
     [](JobSight& job) {
       job.trains = false;
       job.median_step_ns = 300'000'000'000;
     },
     Hang::kHangs, 900'000, "n1"},
    {"a command one of whose processes is stopped",
     [](JobSight& job) {
       job.trains = false;
       job.ranks[0].process_state = "T";
     },
     Hang::kHangs, kStoppedLimitMs, "n0"},
};

TEST(HangJudgement, EachRowOfTheTable) {
  for (const HangRow& row : kHangRows) {
    JobSight job = plain();
    row.change(job);
    const FoundHang found = first_found(job);
    EXPECT_EQ(found.kind, row.kind) << row.what;
    EXPECT_EQ(found.after_ms, row.limit_ms + 1) << row.what;
    EXPECT_EQ(found.verdict.node, row.node) << row.what << ": " << found.verdict.evidence;
    EXPECT_EQ(found.verdict.rank.value < 0, found.verdict.node.empty() || row.is_of_several)
        << row.what;
  }
}

// What counts where it is plain is time in which each rank was heard of.
TEST(HangJudgement, RanksAreNotLookedAtWhileStepsAreAsOldAsTheyUsuallyGet) {
  JobSight job = plain();
  job.median_step_ns = job.slowest_step_ns = 10'000'000'000;
  for (const int64_t still_ms : {int64_t{0}, int64_t{2'000}, int64_t{10'000}, int64_t{30'000}}) {
    job.still_ms = still_ms;
    for (RankSight& rank : job.ranks) rank.still_ms = still_ms;
    EXPECT_FALSE(is_looked_at(job)) << "after " << still_ms << " ms";
  }
  job.ranks[1].process_state = "T";
  EXPECT_TRUE(is_looked_at(job)) << "a stopped process may be one that hangs";
}

TEST(HangJudgement, OneRankThatWasNotHeardOfForLongEnoughMakesItLessPlain) {
  JobSight job = plain();
  job.still_ms = kHangFloorMs;
  for (RankSight& rank : job.ranks) rank.still_ms = kHangFloorMs;
  for (RankSight& rank : job.ranks) {
    rank.still_ms = kPlainHangFloorMs;
    EXPECT_EQ(judge_hang(job).kind, Hang::kNothing) << rank.rank.value;
    rank.still_ms = kPlainHangFloorMs + 1;
    EXPECT_EQ(judge_hang(job).kind, Hang::kHangsPlainly) << rank.rank.value;
  }
}

TEST(HangJudgement, RankThatWaitsForStorageHangsNobody) {
  JobSight job = plain();
  job.ranks[2].waits_for_storage = true;
  EXPECT_EQ(first_found(job).kind, Hang::kNothing);
}

TEST(HangJudgement, NobodyHangsOfWhomNothingIsKnown) {
  JobSight job = plain();
  job.still_ms = 10 * kSavingLimitMs;
  for (RankSight& rank : job.ranks) rank.unheard_ms = job.still_ms + 1;
  EXPECT_EQ(judge_hang(job).kind, Hang::kNothing) << "all of it is old";
  job.ranks.clear();
  EXPECT_EQ(judge_hang(job).kind, Hang::kNothing);
}

// Its node was silent while the others went on to where they wait now: so may it have.
TEST(HangJudgement, WhatARankSaidBeforeTheOthersStoodStillIsNotHeldAgainstIt) {
  JobSight job = plain();
  job.limit_ms = 3'000;
  job.still_ms = 3'001;
  job.ranks[2].unheard_ms = job.still_ms;
  EXPECT_EQ(judge_hang(job).node, "n1") << "it has been heard of since";
  job.ranks[2].unheard_ms += 1;
  const HangVerdict verdict = judge_hang(job);
  EXPECT_EQ(verdict.kind, Hang::kHangs);
  EXPECT_EQ(verdict.node, "");
  EXPECT_EQ(
      verdict.evidence,
      "no step completed for 3 s after step 5; all ranks began collective 57: nothing "
      "distinguishes them; no rank is blamed (phase training); left out, without a report since: "
      "rank 2 (pid 102)");
  job.ranks[0].process_state = "T";
  EXPECT_EQ(judge_hang(job).node, "n0");

  job = plain();
  job.still_ms = kHangFloorMs;
  for (RankSight& rank : job.ranks) rank.still_ms = kHangFloorMs;
  EXPECT_EQ(judge_hang(job).kind, Hang::kHangsPlainly);
  job.ranks[2].unheard_ms = job.still_ms + 1;
  EXPECT_EQ(judge_hang(job).kind, Hang::kNothing);
  job.ranks[2].process_state = "T";
  EXPECT_EQ(judge_hang(job).kind, Hang::kNothing) << "it may have been told to go on";
}

TEST(HangJudgement, TheEvidenceSaysHowLongAndWhatWasSeen) {
  const FoundHang found = first_found(plain());
  EXPECT_EQ(found.verdict.rank, Rank{2});
  EXPECT_EQ(found.verdict.evidence,
            "no step completed for 5 s after step 5; rank 2 (pid 102) began collective 52, others "
            "are waiting in 57 (phase training)");
}

TEST(HangJudgement, PlainHangsAreForgottenAnHourAfterTheNewest) {
  PlainHangs hangs;
  EXPECT_EQ(hangs.count(0), 0);
  hangs.add(1'000);
  hangs.add(kPlainHangMemoryMs);
  EXPECT_EQ(hangs.count(2 * kPlainHangMemoryMs - 1), 2);
  EXPECT_EQ(hangs.count(2 * kPlainHangMemoryMs), 0);
  hangs.add(2 * kPlainHangMemoryMs);
  EXPECT_EQ(hangs.count(2 * kPlainHangMemoryMs), 1);
}

}  // namespace
}  // namespace hpctl::core
