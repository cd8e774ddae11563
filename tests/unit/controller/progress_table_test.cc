// SPDX-License-Identifier: Apache-2.0
// The soft tables of progress: first steps, what is seen of training where a node is silent.
#include <gtest/gtest.h>

#include <set>

#include "common/worker/worker_abi.h"
#include "controller/agents/progress.h"
#include "tests/unit/controller/progress_reports.h"

namespace hpctl {
namespace {

using Sights = std::map<std::string, core::NodeObservation>;

TEST(Standbys, AreKnownUntilTheNodeTellsOfOthers) {
  ProgressTable table;
  table.observe(running_job(1, 0), 0);
  table.report(JobId{1}, "n0", StandbyReport{"b-0", 1, 0, 4'096});
  table.observe(running_job(2, 0), 10);  // nothing is told anew only because a generation is
  EXPECT_EQ(table.of(JobId{1}).standbys.at("n0").ready, 1U);
  table.report(JobId{1}, "n0", StandbyReport{"b-0", 0, 1, 0});
  EXPECT_EQ(table.of(JobId{1}).standbys.at("n0").ready, 0U);
  table.report(JobId{2}, "n0", StandbyReport{"b-0", 1, 0, 0});
  EXPECT_TRUE(table.of(JobId{2}).standbys.empty()) << "there is no such job";
}

TEST(Progress, TheFirstStepOfAGenerationIsTheOnlyTransition) {
  ProgressTable table;
  core::Job job = running_job(2, 40);
  table.observe(job, 0);
  EXPECT_FALSE(table.report(job.id, "n0", {at_step(0, 2, 0, 0)}, 10)) << "still loading";
  EXPECT_FALSE(table.report(job.id, "n0", {at_step(0, 1, 41, 9)}, 10)) << "a former generation";
  EXPECT_EQ(table.of(job.id).step, 40U);
  const auto transition = table.report(job.id, "n0", {at_step(0, 2, 41, 9)}, 20);
  ASSERT_TRUE(transition);
  EXPECT_EQ(transition->step, 41U);
  EXPECT_FALSE(table.report(job.id, "n0", {at_step(0, 2, 42, 19)}, 30));
  EXPECT_EQ(table.of(job.id).step, 42U);
  EXPECT_DOUBLE_EQ(table.of(job.id).loss, 2.5);
  EXPECT_DOUBLE_EQ(table.of(job.id).tokens_per_second, 10'000);
}

TEST(Progress, TheCoreLearnsTheFurthestStepBeforeItJudges) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  table.report(job.id, "n0", {at_step(0, 1, 1, 9)}, 10);
  job.state = core::JobState::kRunning;
  job.furthest_step = 1;
  table.observe(job, 10);
  EXPECT_FALSE(table.news(job.id));
  table.report(job.id, "n0", {at_step(0, 1, 30, 300)}, 20);
  ASSERT_TRUE(table.news(job.id));
  EXPECT_FALSE(table.news(job.id)) << "told once";
}

TEST(Progress, WaitsOfStepsAreTheMeanOfTheRanksAndNewsToo) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  const auto waited = [](int32_t rank, int64_t save_ms, int64_t data_ms) {
    RankReport report = at_step(rank, 1, 5, 50);
    report.figures.emplace().save_waits_ns = static_cast<uint64_t>(save_ms) * 1'000'000;
    report.figures->data_waits_ns = static_cast<uint64_t>(data_ms) * 1'000'000;
    return report;
  };
  const auto first = table.report(job.id, "n0", {waited(0, 100, 0), waited(1, 300, 60)}, 10);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->waits, (StepWaits{200, 30}));
  job.state = core::JobState::kRunning;
  job.furthest_step = 5;
  table.observe(job, 10);
  table.report(job.id, "n0", {waited(0, 150, 0)}, 20);
  EXPECT_EQ(table.of(job.id).waits(), (StepWaits{225, 30}));
  EXPECT_FALSE(table.news(job.id)) << "25 ms are not worth an event";
  table.report(job.id, "n0", {waited(0, 400, 0)}, 30);
  const auto news = table.news(job.id);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->waits, (StepWaits{350, 30}));
  EXPECT_EQ(news->step, 5U);
  EXPECT_FALSE(table.news(job.id)) << "told once";
}

// Seven steps were lost, and the first of them is done again.
core::Job observe_recomputing(ProgressTable& table) {
  core::Job job = running_job(2, 10);
  job.furthest_step = job.regain_step = 17;
  job.recovering_since_ms = 5;
  table.observe(job, 0);
  EXPECT_TRUE(table.report(job.id, "n0", {at_step(0, 2, 11, 9)}, 20)) << "the first step";
  return job;
}

TEST(Progress, TheStepThatMakesALossGoodIsATransition) {
  ProgressTable table;
  core::Job job = observe_recomputing(table);
  EXPECT_FALSE(table.report(job.id, "n0", {at_step(0, 2, 16, 9)}, 30));
  const auto made_good = table.report(job.id, "n0", {at_step(0, 2, 18, 9)}, 40);
  ASSERT_TRUE(made_good);
  EXPECT_EQ(made_good->step, 18U);
  EXPECT_FALSE(table.report(job.id, "n0", {at_step(0, 2, 19, 9)}, 50));
}

TEST(Progress, StepsOfAGenerationThatIsBeingStoppedMakeNothingGood) {
  ProgressTable table;
  core::Job job = observe_recomputing(table);
  job.stage = core::PlanStage::kStopWorkers;
  table.observe(job, 25);
  EXPECT_FALSE(table.report(job.id, "n0", {at_step(0, 2, 18, 9)}, 40));
}

TEST(Progress, NewsSayWhenTheStepWasCompleted) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  table.report(job.id, "n0", {at_step(0, 1, 30, 300)}, 20);
  table.report(job.id, "n0", {at_step(0, 1, 30, 300)}, 900);
  const auto news = table.news(job.id);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->stepped_ms, 20);
}

TEST(Progress, ARankHasMovedWhenItsSecondReportDiffersFromItsFirst) {
  ProgressTable table;
  core::Job job = running_job(2, 10);
  job.stage = core::PlanStage::kMeetNodes;
  const auto has_moved = [&](int64_t now_ms) {
    return table.has_moved(job.id, job.generation, 1'000, now_ms);
  };
  EXPECT_FALSE(has_moved(0)) << "not known yet";
  table.observe(job, 0);
  table.report(job.id, "n0", {at_step(0, 2, 12, 90)}, 20);
  EXPECT_FALSE(has_moved(20)) << "it may have stood there for long";
  table.report(job.id, "n0", {at_step(0, 2, 12, 91)}, 120);
  EXPECT_TRUE(has_moved(1'120));
  EXPECT_FALSE(has_moved(1'121));
  EXPECT_FALSE(table.has_moved(job.id, Generation{3}, 1'000, 120)) << "another generation";
}

TEST(Progress, AJobThatIsTakenOverIsShownWhereItWas) {
  ProgressTable table;
  core::Job job = running_job(2, 10);
  job.stage = core::PlanStage::kMeetNodes;
  job.regain_step = 97;
  table.observe(job, 0);
  EXPECT_EQ(table.of(job.id).step, 97U);
  table.report(job.id, "n0", {at_step(0, 2, 98, 9)}, 20);
  EXPECT_EQ(table.of(job.id).step, 98U);
}

TEST(Progress, SavesThatFailAreToldOnceAndSoIsTheirEnd) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  int64_t now_ms = 0;
  const auto told_after = [&](int32_t rank, uint64_t saves_without_room) {
    RankReport report = at_step(rank, 1, 5, 50);
    report.figures.emplace().saves_without_room = saves_without_room;
    table.report(job.id, "n0", {report}, 0);
    std::string told;
    for (const core::ControllerNoted& note : table.take_notes(now_ms)) told += note.what + "\n";
    return told;
  };
  EXPECT_EQ(told_after(0, 0), "");
  EXPECT_EQ(told_after(1, 3), "") << "rank 0 knows";
  EXPECT_EQ(told_after(0, 1),
            "checkpoints cannot be written (step 5): training goes on without; see the log of rank "
            "0\n");
  EXPECT_EQ(told_after(0, 2), "");
  EXPECT_EQ(told_after(0, 0), "checkpoints are written again (step 5): a checkpoint is durable\n");
  for (now_ms = 10'000; now_ms < 600'000; now_ms += 10'000) {
    EXPECT_EQ(told_after(0, 1) + told_after(0, 0), "") << "a disk at its limit floods no history";
  }
  EXPECT_NE(told_after(0, 1), "");
}

TEST(Progress, RankThatWaitsForStorageIsToldOnceAndSoIsItsEnd) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  const auto told_after = [&](uint64_t failures) {
    RankReport report = at_step(1, 1, 5, 50);
    report.figures.emplace().storage_failures = failures;
    table.report(job.id, "n0", {report}, 0);
    std::string told;
    for (const core::ControllerNoted& note : table.take_notes(0)) told += note.what + "\n";
    return told;
  };
  EXPECT_EQ(told_after(0), "");
  EXPECT_EQ(told_after(1),
            "rank 1 on n0 waits for storage after step 5: it cannot read samples or write the "
            "ledger; see hpctl logs 1\n");
  EXPECT_EQ(told_after(2), "");
  EXPECT_EQ(table.of(job.id).waiting_rank(), "rank 1 on n0");
  EXPECT_EQ(told_after(0), "rank 1 on n0 does not wait for storage any more (after step 5)\n");
}

TEST(Progress, EachSaveThatFindsTheDiskFullAsksForRoom) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  const auto asked_after = [&](int32_t rank, uint64_t saves_out_of_space) {
    RankReport report = at_step(rank, 1, 5, 50);
    report.figures.emplace().saves_out_of_space = saves_out_of_space;
    table.report(job.id, "n0", {report}, 0);
    return table.take_room_needed().size();
  };
  EXPECT_EQ(asked_after(0, 0), 0U);
  EXPECT_EQ(asked_after(1, 1), 0U) << "rank 0 knows";
  EXPECT_EQ(asked_after(0, 1), 1U);
  EXPECT_EQ(asked_after(0, 1), 0U);
  EXPECT_EQ(asked_after(0, 2), 1U);
  EXPECT_EQ(asked_after(0, 0), 0U) << "a save succeeded";
  EXPECT_EQ(asked_after(0, 1), 1U);
}

// ---- what is seen of training where a node is silent -------------------------------------------

RankReport in_collective(int32_t rank, uint64_t step, uint64_t collective) {
  RankReport report = at_step(rank, 1, step, collective);
  report.open_collectives = 1;
  return report;
}

class Sight : public ::testing::Test {
 protected:
  Sight() : job_(running_job(1, 0)) {
    table_.observe(job_, 0);
    table_.report(job_.id, "n0", {in_collective(0, 1, 9), in_collective(1, 1, 9)}, 10);
    table_.report(job_.id, "n1", {in_collective(2, 1, 9), in_collective(3, 1, 9)}, 10);
    job_.state = core::JobState::kRunning;
    table_.observe(job_, 20);
  }
  core::NodeObservation without_n1(int64_t now_ms) {
    return table_.sight(job_.id, {"n1"}, now_ms).at("n1");
  }

  ProgressTable table_;
  core::Job job_;
};

TEST_F(Sight, OnlyRanksOnNodesThatAreHeardCount) {
  table_.report(job_.id, "n1", {at_step(2, 1, 1, 10)}, 900);  // the last that came of it
  const core::NodeObservation seen = without_n1(1'000);
  EXPECT_EQ(seen.training, core::TrainingSight::kSeen);
  EXPECT_TRUE(seen.peers_wait);
  EXPECT_EQ(seen.still_ms, 990);
}

TEST_F(Sight, ARankThatMovesOrComputesSaysThatTrainingGoesOn) {
  table_.report(job_.id, "n0", {in_collective(0, 1, 10)}, 950);
  EXPECT_EQ(without_n1(1'000).still_ms, 50);
  table_.report(job_.id, "n0", {at_step(0, 1, 1, 10)}, 960);
  EXPECT_FALSE(without_n1(1'400).peers_wait);
}

TEST_F(Sight, WhereNobodyIsHeardNothingIsSeen) {
  const Sights seen = table_.sight(job_.id, {"n0", "n1"}, 1'000);
  EXPECT_EQ(seen.at("n0").training, core::TrainingSight::kUnseen);
  EXPECT_EQ(seen.at("n1").training, core::TrainingSight::kUnseen);
}

TEST_F(Sight, WhatMovesProvesThatEachNodeWithRanksTrains) {
  table_.report(job_.id, "n0", {in_collective(0, 1, 10)}, 950);
  const Sights seen = table_.sight(job_.id, {"n1", "n2"}, 1'000);
  EXPECT_EQ(seen.at("n1").trained_ms, 50);
  EXPECT_EQ(seen.at("n2").trained_ms, core::kNeverMs) << "a spare";
  EXPECT_EQ(seen.at("n2").still_ms, 50);
  EXPECT_EQ(table_.sight(job_.id, {"n0", "n1"}, 1'000).at("n1").trained_ms, 50)
      << "n0 is late by three beats, and was heard after n1";
  job_.state = core::JobState::kRecovering;
  job_.stage = core::PlanStage::kStopWorkers;
  table_.observe(job_, 1'000);
  EXPECT_EQ(without_n1(1'000).trained_ms, core::kNeverMs);
}

TEST_F(Sight, BeforeTheFirstStepNothingIsSeen) {
  job_.generation = Generation{2};
  job_.state = core::JobState::kStarting;
  table_.observe(job_, 30);
  table_.report(job_.id, "n0", {at_step(0, 2, 0, 3)}, 40);
  EXPECT_EQ(without_n1(1'000).training, core::TrainingSight::kUnseen);
}

// Under a controller that has just taken over; n1 has not told it what it has.
TEST(SightOfAMeeting, RanksOfNodesThatHaveComeSayWhetherTrainingGoesOn) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  job.state = core::JobState::kRecovering;
  job.stage = core::PlanStage::kMeetNodes;
  table.observe(job, 0);
  const auto without_n1 = [&](int64_t now_ms) {
    return table.sight(job.id, {"n1"}, now_ms).at("n1");
  };
  EXPECT_EQ(without_n1(5).training, core::TrainingSight::kUnseen) << "nobody has come";
  table.report(job.id, "n0", {in_collective(0, 7, 9), in_collective(1, 7, 9)}, 10);
  EXPECT_EQ(without_n1(500).training, core::TrainingSight::kSeen);
  EXPECT_TRUE(without_n1(500).peers_wait);
  EXPECT_EQ(without_n1(500).still_ms, 490);
  EXPECT_EQ(without_n1(500).trained_ms, core::kNeverMs) << "no rank was seen to move";
  table.report(job.id, "n0", {in_collective(0, 7, 10)}, 600);
  EXPECT_EQ(without_n1(650).trained_ms, 50) << "a step takes the ranks of all nodes";
}

TEST_F(Sight, ARecoveryWaitsForItsNodes) {
  job_.state = core::JobState::kRecovering;
  job_.stage = core::PlanStage::kStopWorkers;
  job_.fault_is_collateral = true;
  table_.observe(job_, 30);
  EXPECT_EQ(without_n1(1'000).training, core::TrainingSight::kStopped);
  EXPECT_TRUE(without_n1(1'000).peers_broke);
  job_.fault_is_collateral = false;  // a worker's death explains it
  table_.observe(job_, 40);
  EXPECT_FALSE(without_n1(1'000).peers_broke);
}

TEST_F(Sight, OfASuspendedJobNothingIsSeen) {
  job_.suspended_since_ms = 30;
  table_.observe(job_, 30);
  EXPECT_EQ(without_n1(1'000).training, core::TrainingSight::kUnseen);
}

TEST(SightOfACommand, ItsPausesAreKnownOnceThereAreEnough) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  job.spec.train.reset();
  table.observe(job, 0);
  job.state = core::JobState::kRunning;
  table.observe(job, 0);
  const auto sight = [&](int64_t now_ms) { return table.sight(job.id, {"n1", "spare"}, now_ms); };
  for (int64_t step = 1; step <= 9; ++step) {
    EXPECT_EQ(sight(step * 100)["n1"].longest_pause_ms, 0);
    const int64_t now_ms = step == 9 ? 850 : step * 100;
    const auto told = static_cast<uint64_t>(step);
    table.report(job.id, "n0", {at_step(0, 1, told, 0), at_step(1, 1, told, 0)}, now_ms);
    table.report(job.id, "n1", {at_step(2, 1, told, 0), at_step(3, 1, told, 0)}, now_ms + 10);
  }
  Sights seen = sight(1'350);
  EXPECT_TRUE(seen["n1"].is_command);
  EXPECT_EQ(seen["n1"].longest_pause_ms, 100);
  EXPECT_EQ(seen["n1"].still_ms, 500);
  EXPECT_EQ(seen["spare"].longest_pause_ms, 0) << "no step waits for it";
  // n0 tells no more: what is known of its pace says nothing of n1's steps.
  for (uint64_t step = 10; step <= 40; ++step) {
    table.report(job.id, "n1", {at_step(2, 1, step, 0)}, 100 * static_cast<int64_t>(step));
  }
  EXPECT_EQ(sight(9'000)["n1"].longest_pause_ms, 0);
}

}  // namespace
}  // namespace hpctl
