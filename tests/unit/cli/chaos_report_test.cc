// SPDX-License-Identifier: Apache-2.0
#include "hpctl/chaos_report.h"

#include <gtest/gtest.h>

#include "controller/core/save_notes.h"

namespace hpctl {
namespace {

constexpr int64_t kInjectedMs = 1'000'000;

// So many milliseconds after the fault.
EventView told(uint64_t seq, int64_t ms, const std::string& type, const std::string& node,
               int32_t rank = -1, uint64_t step = 0) {
  EventView event;
  event.seq = seq;
  event.wall_ms = kInjectedMs + ms;
  event.type = type;
  event.node = node;
  event.rank = rank;
  event.step = step;
  return event;
}

FaultResult judged(InjectedFault fault, int32_t rank, const std::string& node,
                   const std::vector<EventView>& after) {
  FaultResult result;
  result.fault = fault;
  result.rank = rank;
  result.node = node;
  result.injected = true;
  result.seq = 10;
  result.wall_ms = kInjectedMs;
  judge(result, after,
        {{"n0", "active", "up", "", "", 1, 2},
         {"n1", "active", "up", "", "", 3, 4},
         {"n2", "spare", "down", "", "", 0, 0}});
  return result;
}

TEST(ChaosReport, AConsequenceIsNobodysUntilItsCauseIsFound) {
  std::vector<EventView> after = {told(11, 20, "WorkerExited", "n0", 0, 41),
                                  told(11, 20, "JobRecovering", "n0", -1, 40)};
  FaultResult result = judged(InjectedFault::kKillWorker, 3, "n1", after);
  EXPECT_TRUE(result.found);
  EXPECT_EQ(result.noticed_ms, 20);
  EXPECT_EQ(result.blame, Blame::kNobody);
  EXPECT_FALSE(result.back_ms.has_value());
  after.push_back(told(12, 25, "WorkerExited", "n1", 3, 40));
  after.push_back(told(12, 25, "CauseFound", "n1", 3));
  after.push_back(told(13, 40, "RecordGeneration", "", -1, 38));
  after.push_back(told(14, 150, "JobRunning", ""));
  result = judged(InjectedFault::kKillWorker, 3, "n1", after);
  EXPECT_EQ(result.blame, Blame::kRight);
  EXPECT_EQ(result.blamed_rank, 3);
  EXPECT_EQ(result.back_ms, 150);
  EXPECT_EQ(result.lost_steps, 3U);
}

TEST(ChaosReport, TheWrongRankIsNotTheRightOne) {
  const FaultResult result = judged(
      InjectedFault::kStopWorker, 3, "n1",
      {told(11, 900, "HangDetected", "n0", 1), told(11, 900, "JobRecovering", "n0", 1, 7),
       told(12, 950, "RecordGeneration", "", -1, 7), told(13, 999, "JobRunning", ""),
       // A later recovery does not make the first verdict a better one.
       told(14, 1900, "WorkerExited", "n1", 3, 9), told(14, 1900, "JobRecovering", "n1", 3, 9),
       told(15, 1950, "RecordGeneration", "", -1, 8), told(16, 2000, "JobRunning", "")});
  EXPECT_EQ(result.blame, Blame::kWrong);
  EXPECT_EQ(result.noticed_ms, 900);
  EXPECT_EQ(result.back_ms, 2000);
  EXPECT_EQ(result.lost_steps, 1U);
  const FaultResult hang =
      judged(InjectedFault::kStopWorker, 3, "n1",
             {told(11, 900, "HangDetected", ""), told(11, 900, "JobRecovering", "")});
  EXPECT_EQ(hang.blame, Blame::kNobody);
}

EventView noted(int64_t ms, const std::string& words) {
  EventView event = told(11, ms, "ControllerNoted", "");
  event.cause = words + " (step 3): more";
  return event;
}

TEST(ChaosReport, ADiskIsFoundFullAndIsBackWithACheckpoint) {
  std::vector<EventView> after = {noted(300, core::kSavesFail)};
  FaultResult result = judged(InjectedFault::kFullDisk, 2, "n1", after);
  EXPECT_TRUE(result.found);
  EXPECT_EQ(result.blame, Blame::kNotDue);
  EXPECT_EQ(result.noticed_ms, 300);
  EXPECT_FALSE(result.back_ms.has_value());
  after.push_back(noted(6'000, core::kSavesWork));
  EXPECT_EQ(judged(InjectedFault::kFullDisk, 2, "n1", after).back_ms, 6'000);
  EXPECT_FALSE(judged(InjectedFault::kFullDisk, 2, "n1", {}).found);
}

TEST(ChaosReport, StorageIsFoundAsADiskIs) {
  std::vector<EventView> after = {noted(300, core::kSavesFail), noted(6'000, core::kSavesWork)};
  const FaultResult error = judged(InjectedFault::kStorageError, 2, "n1", after);
  EXPECT_TRUE(error.found);
  EXPECT_EQ(error.blame, Blame::kNotDue);
  EXPECT_EQ(error.back_ms, 6'000);
  after = {told(12, kStoragePauseMs - 40, "CheckpointCommitted", "")};
  EXPECT_FALSE(judged(InjectedFault::kStoragePause, 2, "n1", after).found) << "begun before";
  after.push_back(told(13, kStoragePauseMs + 40, "CheckpointCommitted", ""));
  EXPECT_EQ(judged(InjectedFault::kStoragePause, 2, "n1", after).back_ms, kStoragePauseMs + 40);
}

TEST(ChaosReport, ASlowDiskIsJudgedByTheCheckpointAfterIt) {
  std::vector<EventView> after = {told(11, 200, "CheckpointCommitted", "")};
  EXPECT_FALSE(judged(InjectedFault::kSlowDisk, 2, "n1", after).found) << "begun before";
  after.push_back(told(12, kDiskTroubleMs + 40, "CheckpointCommitted", ""));
  const FaultResult result = judged(InjectedFault::kSlowDisk, 2, "n1", after);
  EXPECT_TRUE(result.found);
  EXPECT_FALSE(result.noticed_ms.has_value());
  EXPECT_EQ(result.back_ms, kDiskTroubleMs + 40);
}

TEST(ChaosReport, AnAgentThatIsCutOffIsBackWhenItRegisters) {
  const FaultResult result =
      judged(InjectedFault::kCutAgent, -1, "n1",
             {told(11, 10, "AgentDisconnected", "n1"), told(12, 3'010, "AgentRegistered", "n1")});
  EXPECT_TRUE(result.found);
  EXPECT_EQ(result.noticed_ms, 10);
  EXPECT_EQ(result.back_ms, 3'010);
}

TEST(ChaosReport, WhatIsOnlyLateIsFoundWhereItPassesALimitAndThenInItsPlace) {
  const std::vector<EventView> ordinary = {told(11, 900, "CheckpointCommitted", ""),
                                           told(12, 6'000, "CheckpointCommitted", "")};
  for (const auto fault : {InjectedFault::kSlowWorker, InjectedFault::kDelayMessages}) {
    const FaultResult unnoticed = judged(fault, 3, "n1", ordinary);
    EXPECT_FALSE(unnoticed.found) << to_word(fault);
    EXPECT_EQ(unnoticed.blame, Blame::kNotDue);
    EXPECT_EQ(unnoticed.lost_steps, 0U);
  }
  const auto recovers = [](InjectedFault fault, const std::string& node, int32_t rank) {
    return judged(
        fault, 3, "n1",
        {told(11, 1'600, "JobRecovering", node, rank, 8),
         told(12, 1'700, "RecordGeneration", "", -1, 7), told(13, 1'900, "JobRunning", "")});
  };
  const FaultResult late = recovers(InjectedFault::kDelayMessages, "n1", -1);
  EXPECT_TRUE(late.found);
  EXPECT_EQ(late.blame, Blame::kRight);
  EXPECT_EQ(late.noticed_ms, 1'600);
  EXPECT_EQ(late.back_ms, 1'900);
  EXPECT_EQ(late.lost_steps, 1U);
  EXPECT_EQ(recovers(InjectedFault::kDelayMessages, "n0", -1).blame, Blame::kWrong);
  EXPECT_EQ(recovers(InjectedFault::kSlowWorker, "n1", 3).blame, Blame::kRight);
  EXPECT_EQ(recovers(InjectedFault::kSlowWorker, "n1", 2).blame, Blame::kWrong);
  EXPECT_FALSE(recovers(InjectedFault::kFlipParameter, "n1", 3).found) << "that was another fault";
}

// The rank, or its node where that is all that is known, or nobody.
TEST(ChaosReport, WhatBefallsTheNetworkBetweenRanksIsBlamedOnNoInnocentOne) {
  const auto blamed = [](const std::string& node, int32_t rank) {
    const FaultResult result = judged(InjectedFault::kLoseCollectives, 3, "n1",
                                      {told(11, 4'100, "JobRecovering", node, rank, 8)});
    EXPECT_TRUE(result.found);
    return result.blame;
  };
  EXPECT_EQ(blamed("", -1), Blame::kNotDue);
  EXPECT_EQ(blamed("n1", 3), Blame::kRight);
  EXPECT_EQ(blamed("n1", -1), Blame::kRight);
  EXPECT_EQ(blamed("n1", 2), Blame::kWrong);
  EXPECT_EQ(blamed("n0", -1), Blame::kWrong);
  EXPECT_FALSE(judged(InjectedFault::kLoseCollectives, 3, "n1", {}).found);
}

TEST(ChaosReport, LostMessagesEndTheConnectionOrTheNode) {
  std::vector<EventView> after = {told(11, 3'002, "AgentDisconnected", "n1"),
                                  told(12, 3'040, "AgentRegistered", "n1")};
  FaultResult result = judged(InjectedFault::kLoseMessages, -1, "n1", after);
  EXPECT_TRUE(result.found);
  EXPECT_EQ(result.blame, Blame::kNotDue);
  EXPECT_EQ(result.noticed_ms, 3'002);
  EXPECT_EQ(result.back_ms, 3'040);
  after = {told(11, 2'400, "NodeLost", "n1"), told(11, 2'400, "JobRecovering", "n1"),
           told(12, 3'100, "AgentRegistered", "n1"), told(13, 3'200, "JobRunning", "")};
  result = judged(InjectedFault::kLoseMessages, -1, "n1", after);
  EXPECT_EQ(result.blame, Blame::kRight);
  EXPECT_EQ(result.noticed_ms, 2'400);
  EXPECT_EQ(result.back_ms, 3'200);
  after[1].node = "n0";
  EXPECT_EQ(judged(InjectedFault::kLoseMessages, -1, "n1", after).blame, Blame::kWrong);
}

TEST(ChaosReport, ANodeIsBlamedAsANode) {
  const auto lost = [](const std::string& node) {
    return std::vector<EventView>{told(11, 90, "NodeLost", node),
                                  told(11, 90, "JobRecovering", node)};
  };
  EXPECT_EQ(judged(InjectedFault::kKillHolder, -1, "n1", lost("n1")).blame, Blame::kRight);
  EXPECT_EQ(judged(InjectedFault::kKillHolder, -1, "n1", lost("n0")).blame, Blame::kWrong);
  EXPECT_EQ(judged(InjectedFault::kKillWorker, 3, "n1", lost("n1")).blame, Blame::kWrong)
      << "the node is not to blame for its worker's death";
  EXPECT_FALSE(judged(InjectedFault::kKillHolder, -1, "n1", {}).found);
}

TEST(ChaosReport, ADamagedCheckpointIsFoundWhenSomebodyReadsIt) {
  std::vector<EventView> after = {told(11, 90, "NodeLost", "n1"),
                                  told(11, 90, "JobRecovering", "n1", -1, 30),
                                  told(12, 95, "RecordGeneration", "", -1, 28)};
  const auto damaged = [&] { return judged(InjectedFault::kCorruptCheckpoint, -1, "n1", after); };
  EXPECT_FALSE(damaged().found);
  // A recovery of its own, whose cause is not that of the first.
  after.push_back(told(13, 198, "WorkerExited", "n0", 1, 28));
  after.push_back(told(13, 198, "JobRecovering", "n0", -1, 30));
  after.push_back(told(14, 200, "WorkerExited", "n0", 0, 28));
  after.push_back(told(14, 200, "CheckpointDamaged", "n0", 0));
  after.push_back(told(14, 200, "CauseFound", "n0", 0));
  after.push_back(told(15, 300, "RecordGeneration", "", -1, 21));
  after.push_back(told(16, 400, "JobRunning", ""));
  EXPECT_TRUE(damaged().found);
  EXPECT_EQ(damaged().noticed_ms, 200);
  EXPECT_EQ(damaged().back_ms, 400);
  EXPECT_EQ(damaged().lost_steps, 9U);
  EXPECT_EQ(damaged().blame, Blame::kRight);
}

TEST(ChaosReport, SupervisorsComeBackAndNobodyIsBlamed) {
  std::vector<EventView> after = {told(11, 15, "AgentDisconnected", "n0"),
                                  told(12, 90, "AgentRegistered", "n0")};
  const FaultResult agent = judged(InjectedFault::kKillAgent, -1, "n0", after);
  EXPECT_TRUE(agent.found);
  EXPECT_EQ(agent.noticed_ms, 15);
  EXPECT_EQ(agent.back_ms, 90);
  EXPECT_EQ(agent.blame, Blame::kNotDue);
  EXPECT_FALSE(judged(InjectedFault::kKillAgent, -1, "n1", after).found) << "that was another";

  FaultResult controller = judged(InjectedFault::kKillController, -1, "", after);
  EXPECT_EQ(controller.noticed_ms, 90);
  EXPECT_FALSE(controller.back_ms.has_value()) << "n1 has not come";
  after.push_back(told(13, 120, "AgentRegistered", "n1"));
  controller = judged(InjectedFault::kKillController, -1, "", after);
  EXPECT_EQ(controller.back_ms, 120);
  // Training was disturbed for nothing.
  after.push_back(told(14, 130, "JobRecovering", "n1", -1, 9));
  controller = judged(InjectedFault::kKillController, -1, "", after);
  EXPECT_EQ(controller.blame, Blame::kWrong);
  EXPECT_FALSE(controller.back_ms.has_value());
  after.push_back(told(15, 500, "JobRunning", ""));
  EXPECT_EQ(judged(InjectedFault::kKillController, -1, "", after).back_ms, 500);
}

TEST(ChaosReport, AnUnfitStepIsFoundWhereItIsToldAndNobodysFault) {
  const auto nan = [](const std::vector<EventView>& after) {
    return judged(InjectedFault::kNanGradient, 3, "n1", after);
  };
  EXPECT_FALSE(nan({}).found);
  const EventView unfit = told(11, 30, "NonFiniteFound", "n0", 0, 8);
  FaultResult result = nan({unfit, told(11, 30, "BatchSkipped", "", -1, 8)});
  EXPECT_TRUE(result.found);
  EXPECT_EQ(result.blame, Blame::kNotDue);
  EXPECT_EQ(result.noticed_ms, 30);
  EXPECT_EQ(result.back_ms, 30);
  EXPECT_EQ(result.lost_steps, 0U);
  result = nan({unfit, told(11, 30, "TrainingRolledBack", "", -1, 2)});
  EXPECT_EQ(result.back_ms, 30);
  EXPECT_EQ(result.lost_steps, 6U);

  std::vector<EventView> stops = {unfit, told(11, 30, "TrainingStopped", "")};
  EXPECT_FALSE(nan(stops).back_ms.has_value()) << "the recovery is still to come";
  stops.push_back(told(12, 32, "WorkerExited", "n1", 2, 8));
  stops.push_back(told(12, 32, "JobRecovering", "", -1, 8));
  EXPECT_FALSE(nan(stops).back_ms.has_value());
  stops.push_back(told(13, 40, "RecordGeneration", "", -1, 8));
  stops.push_back(told(14, 150, "JobRunning", ""));
  result = nan(stops);
  EXPECT_EQ(result.blame, Blame::kNotDue);
  EXPECT_EQ(result.noticed_ms, 30);
  EXPECT_EQ(result.back_ms, 150);
  EXPECT_EQ(result.lost_steps, 0U);
}

TEST(ChaosReport, TheRankOfAnUnfitStepMayBeNamedAndNoOther) {
  const auto named = [](int32_t rank) {
    return judged(InjectedFault::kNanGradient, 3, "n1",
                  {told(11, 30, "JobRecovering", "n1", 2, 8),
                   told(12, 31, "NonFiniteFound", "n0", 0, 8),
                   told(12, 31, "CauseFound", rank < 0 ? "" : "n1", rank)})
        .blame;
  };
  EXPECT_EQ(named(3), Blame::kRight);
  EXPECT_EQ(named(2), Blame::kWrong);
  EXPECT_EQ(named(-1), Blame::kNotDue) << "whose exit was reported first is taken back";
}

TEST(ChaosReport, WhatWasNotDoneDoesNotCount) {
  EventView not_done = told(11, 5, "FaultNotInjected", "n1");
  not_done.because = 10;
  not_done.cause = "was not injected: it was gone";
  const FaultResult result = judged(InjectedFault::kKillWorker, 3, "n1", {not_done});
  EXPECT_FALSE(result.injected);
  EXPECT_EQ(result.problem, not_done.cause);
  ChaosReport report;
  report.planned = 1;
  report.faults = {result};
  EXPECT_FALSE(is_good(report));
}

}  // namespace
}  // namespace hpctl
