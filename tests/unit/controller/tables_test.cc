// SPDX-License-Identifier: Apache-2.0
// The soft tables: heartbeat deadlines, first steps, what is seen of training.
#include <gtest/gtest.h>

#include <set>

#include "common/base/worker_abi.h"
#include "controller/agents/liveness.h"
#include "controller/agents/progress.h"
#include "tests/unit/controller/progress_reports.h"

namespace hpctl {
namespace {

const core::NodeKey kNode{JobId{1}, "n0"};

using Sights = std::map<std::string, core::SilentNode>;

Sights nothing_seen(JobId, const std::set<std::string>&) { return {}; }

std::vector<core::NodeLost> take_lost(Liveness& table, int64_t now_ms) {
  return table.judge(now_ms, nothing_seen).lost;
}

TEST(Liveness, ANodeIsLostAfterItsDeadlineAndOnlyOnce) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.heard(kNode, "life", 1'500);
  table.heard(kNode, "former life", 3'000);
  EXPECT_TRUE(take_lost(table, 3'500).empty());
  const auto lost = take_lost(table, 3'501);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].boot_id, "life");
  EXPECT_EQ(lost[0].cause, "no heartbeat for 2001 ms (limit 2000 ms)");
  EXPECT_TRUE(take_lost(table, 9'000).empty());
}

TEST(Liveness, AStallOfTheControllerIsNobodysFault) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.rearm(60'000);
  EXPECT_TRUE(take_lost(table, 61'000).empty());
  EXPECT_EQ(take_lost(table, 62'001).size(), 1U);
}

TEST(Liveness, ANodeThatSaidGoodbyeIsNotWatched) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.forget(kNode, "other");
  table.forget(kNode, "life");
  EXPECT_TRUE(take_lost(table, 9'000).empty());
}

TEST(Liveness, ANodeWhoseStreamHasEndedIsLostAfterItsDeadline) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.closed(kNode, "other");
  EXPECT_EQ(table.heard_nodes(kNode.job).size(), 1U);
  table.closed(kNode, "life");
  EXPECT_TRUE(table.heard_nodes(kNode.job).empty());
  EXPECT_TRUE(take_lost(table, 2'000).empty());
  const auto lost = take_lost(table, 2'001);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].boot_id, "life");
  EXPECT_TRUE(take_lost(table, 9'000).empty()) << "once";
}

TEST(Liveness, ANodeThatIsBackIsNotLostForHavingBeenAway) {
  Liveness table;
  table.watch(kNode, "life", 2'000, 0);
  table.closed(kNode, "life");
  table.heard(kNode, "life", 1'900);  // its registration, which is being committed
  EXPECT_TRUE(take_lost(table, 3'900).empty());
  table.watch(kNode, "life", 2'000, 3'900);
  EXPECT_TRUE(take_lost(table, 5'900).empty());
}

TEST(Liveness, ANodeThatIsSeenToTrainIsNotLostUntilNothingMoves) {
  for (const bool is_closed : {false, true}) {
    Liveness table;
    const core::NodeKey spare{JobId{1}, "n1"};
    table.watch(kNode, "life", 2'000, 0);
    table.watch(spare, "other", 2'000, 0);
    if (is_closed) table.closed(kNode, "life");
    int64_t still_ms = 0;
    const auto sight = [&](JobId, const std::set<std::string>& silent) {
      Sights sights;
      for (const std::string& node : silent) {
        sights[node].training = core::TrainingSight::kSeen;
        sights[node].still_ms = still_ms;
      }
      sights[kNode.name].trained_ms = still_ms;
      return sights;
    };
    const auto without_ranks = table.judge(60'000, sight).lost;
    ASSERT_EQ(without_ranks.size(), 1U) << is_closed;
    EXPECT_EQ(without_ranks[0].node, spare.name);
    still_ms = 2'000;
    EXPECT_TRUE(table.judge(62'000, sight).lost.empty()) << is_closed;
    still_ms = 2'001;
    EXPECT_EQ(table.judge(62'001, sight).lost.size(), 1U) << is_closed;
  }
}

TEST(Liveness, WhetherAllNodesAreSilentThoseSayWhoseStreamsAreOpen) {
  Liveness table;
  const core::NodeKey other{JobId{1}, "n1"};
  table.watch(kNode, "a", 2'000, 0);
  table.watch(other, "b", 2'000, 0);
  table.closed(kNode, "a");
  table.heard(other, "b", 59'500);
  EXPECT_TRUE(table.take_silent_jobs(60'000).empty());
  EXPECT_EQ(table.take_silent_jobs(60'501).size(), 1U) << "the closed one is not asked";
  table.answered(JobId{1});
  table.heard(other, "b", 61'000);
  table.closed(other, "b");
  EXPECT_TRUE(table.take_silent_jobs(90'000).empty()) << "nobody is left whose silence says it";
}

TEST(Liveness, SilenceOfAllNodesOfAJobIsAskedAboutFirst) {
  Liveness table;
  const core::NodeKey other{JobId{1}, "n1"};
  table.watch(kNode, "a", 2'000, 0);
  table.watch(other, "b", 2'000, 0);
  table.heard(other, "b", 1'000);
  EXPECT_TRUE(table.take_silent_jobs(2'000).empty()) << "one is heard";
  EXPECT_EQ(table.take_silent_jobs(2'001), std::vector<JobId>{JobId{1}}) << "before one is lost";
  EXPECT_TRUE(table.take_silent_jobs(3'600).empty()) << "asked once";
  EXPECT_TRUE(take_lost(table, 60'000).empty()) << "nobody has answered";
  table.rearm(JobId{1}, 60'000);  // it was suspended, and goes on
  EXPECT_TRUE(take_lost(table, 61'000).empty());
  EXPECT_EQ(table.take_silent_jobs(63'000).size(), 1U) << "its silence counts anew";
  table.answered(JobId{1});
  EXPECT_EQ(take_lost(table, 63'000).size(), 2U);
}

TEST(Liveness, NoNodeOfASuspendedJobIsLostThoughAnotherIsHeard) {
  Liveness table;
  const core::NodeKey other{JobId{1}, "n1"};
  table.watch(kNode, "a", 2'000, 0);
  table.watch(other, "b", 2'000, 0);
  table.suspend(JobId{1});
  table.heard(other, "b", 59'000);  // of before: the scheduler stops one node after the other
  EXPECT_TRUE(take_lost(table, 60'000).empty());
  table.rearm(JobId{1}, 60'000);
  EXPECT_TRUE(take_lost(table, 62'000).empty());
  EXPECT_EQ(take_lost(table, 62'001).size(), 2U);
}

// A job whose other ranks wait in a collective, and a node of it whose holder can be probed.
class WaitedFor : public ::testing::Test {
 protected:
  static Sights others_wait(JobId, const std::set<std::string>&) {
    Sights sights;
    core::SilentNode& seen = sights[kNode.name];
    seen.training = core::TrainingSight::kSeen;
    seen.still_ms = core::kStillMs;
    seen.peers_wait = true;
    return sights;
  }

  WaitedFor() { table_.watch(kNode, "life", 10'000, 0, "10.0.0.1:7000"); }
  // Probes as the answer says; false when none was asked for.
  bool probe(int64_t now_ms, core::HolderProbe answer) {
    const auto findings = table_.judge(now_ms, others_wait);
    EXPECT_TRUE(findings.lost.empty());
    if (findings.probes.size() != 1) return false;
    EXPECT_EQ(findings.probes[0].address, "10.0.0.1:7000");
    table_.probed(findings.probes[0], answer);
    return true;
  }

  void register_it() {
    ASSERT_TRUE(probe(10, core::HolderProbe::kAnswered));
    table_.heard(kNode, "life", 20);
  }

  Liveness table_;
};

TEST_F(WaitedFor, AnUnansweredProbeLosesTheNode) {
  register_it();
  table_.heard(kNode, "life", 1'000);
  EXPECT_FALSE(probe(1'299, core::HolderProbe::kUnanswered)) << "two beats may be late";
  ASSERT_TRUE(probe(1'300, core::HolderProbe::kUnanswered));
  EXPECT_TRUE(table_.judge(1'599, others_wait).lost.empty());
  const auto lost = table_.judge(1'600, others_wait).lost;
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].boot_id, "life");
}

TEST_F(WaitedFor, ARefusedProbeLosesTheNodeAlsoWhenItsStreamHasEnded) {
  register_it();
  table_.closed(kNode, "life");
  ASSERT_TRUE(probe(320, core::HolderProbe::kRefused));
  EXPECT_EQ(table_.judge(420, others_wait).lost.size(), 1U);
}

TEST_F(WaitedFor, ANodeThatTheCoreHasGivenUpIsNotProbed) {
  register_it();
  table_.given_up(kNode);  // another life of it, say: this stream is watched on
  EXPECT_EQ(table_.heard_nodes(kNode.job).size(), 1U);
  table_.closed(kNode, "life");
  table_.given_up(kNode);
  EXPECT_FALSE(probe(700, core::HolderProbe::kRefused));
}

TEST_F(WaitedFor, ABusyNodeAnswersItsProbesAndIsAskedAgain) {
  register_it();
  for (int64_t now = 320; now < 9'000; now += 501) {
    EXPECT_TRUE(probe(now, core::HolderProbe::kAnswered)) << now;
    EXPECT_FALSE(probe(now + 100, core::HolderProbe::kAnswered)) << now;
  }
}

TEST_F(WaitedFor, AProbeThatNeverWasAnsweredSaysNothing) {
  ASSERT_TRUE(probe(10, core::HolderProbe::kRefused)) << "a firewall";
  EXPECT_FALSE(probe(9'000, core::HolderProbe::kRefused));
}

TEST_F(WaitedFor, AnAnswerOfAnEarlierSilenceDoesNotCount) {
  register_it();
  ASSERT_TRUE(probe(400, core::HolderProbe::kUnanswered));
  table_.heard(kNode, "life", 450);
  EXPECT_TRUE(probe(850, core::HolderProbe::kAnswered));
}

TEST_F(WaitedFor, AnAnswerThatNeverComesIsAskedForAgain) {
  register_it();
  EXPECT_EQ(table_.judge(400, others_wait).probes.size(), 1U);
  EXPECT_TRUE(table_.judge(1'400, others_wait).probes.empty());
  EXPECT_EQ(table_.judge(1'401, others_wait).probes.size(), 1U);
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

TEST(Progress, AFullDiskOfTheCheckpointsIsToldOnceAndSoIsItsEnd) {
  ProgressTable table;
  core::Job job = running_job(1, 0);
  table.observe(job, 0);
  const auto told_after = [&](int32_t rank, uint64_t saves_without_room) {
    RankReport report = at_step(rank, 1, 5, 50);
    report.figures.emplace().saves_without_room = saves_without_room;
    table.report(job.id, "n0", {report}, 0);
    std::string told;
    for (const core::ControllerNoted& note : table.take_notes()) told += note.what + "\n";
    return told;
  };
  EXPECT_EQ(told_after(0, 0), "");
  EXPECT_EQ(told_after(1, 3), "") << "rank 0 knows";
  EXPECT_EQ(told_after(0, 1),
            "the disk of the checkpoints is full (step 5): training goes on without saving; free "
            "space there\n");
  EXPECT_EQ(told_after(0, 2), "");
  EXPECT_EQ(told_after(0, 0),
            "the disk of the checkpoints has room again (step 5): a checkpoint is durable\n");
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
  core::SilentNode without_n1(int64_t now_ms) {
    return table_.sight(job_.id, {"n1"}, now_ms).at("n1");
  }

  ProgressTable table_;
  core::Job job_;
};

TEST_F(Sight, OnlyRanksOnNodesThatAreHeardCount) {
  table_.report(job_.id, "n1", {at_step(2, 1, 1, 10)}, 900);  // the last that came of it
  const core::SilentNode seen = without_n1(1'000);
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

}  // namespace
}  // namespace hpctl
