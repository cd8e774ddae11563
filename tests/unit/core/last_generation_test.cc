// SPDX-License-Identifier: Apache-2.0
// Jobs that fail for good while only the memory of their workers has the last steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "common/worker/worker_abi.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two nodes with two ranks each, one restart, and step 17 sealed on every rank.
class LastGeneration : public ::testing::Test {
 protected:
  void SetUp() override {
    JobSpec spec = small_job("demo");
    spec.recovery.max_restarts = 1;
    id = shell.submit(spec);
    shell.settle();
    shell.progress(id, 1);
    shell.exit_worker(id, 2, 0, SIGKILL, 10);
    shell.settle();
    shell.progress(id, 11);
    shell.seals.own = {{17, 7, job().generation.value}};
  }
  const Job& job() const { return shell.job(id); }
  void end_workers(int32_t code, int32_t signal, const std::string& message = "") {
    for (int32_t rank = 0; rank < 4; ++rank) {
      shell.exit_worker(id, rank, code, signal, 17, message);
    }
  }
  // The second, and no restart is left.
  void spend_budget() {
    end_workers(0, SIGKILL);
    ASSERT_EQ(job().state, JobState::kRecovering);
    EXPECT_THAT(job().reason, HasSubstr("the restart budget is spent"));
  }

  FakeShell shell;
  JobId id;
};

TEST_F(LastGeneration, SavesWhatMemoryHasBeforeTheJobFails) {
  ASSERT_NO_FATAL_FAILURE(spend_budget());
  shell.restart();
  shell.settle_kind("StopWorkers");
  shell.settle_kind("FindCheckpoint");
  shell.settle_kind("RecordGeneration");
  const auto starts = shell.open(ActionKind::kStartWorkers);
  ASSERT_EQ(starts.size(), 2U);
  const auto& start = std::get<StartWorkers>(starts[0]->body);
  EXPECT_TRUE(start.last);
  EXPECT_FALSE(start.suspect);
  EXPECT_EQ(start.start_step, 17U);
  shell.settle();
  EXPECT_EQ(job().state, JobState::kRecovering);
  end_workers(0, SIGTERM);
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("the restart budget is spent"));
  EXPECT_THAT(job().reason, HasSubstr("the last step is saved as step-17.g3"));
}

// The error is in the data, and would repeat.
TEST_F(LastGeneration, FollowsAnErrorThatNoRestartHelps) {
  shell.exit_worker(id, 1, kExitDoNotRestart, 0, 17, "data became shorter");
  ASSERT_EQ(job().state, JobState::kRecovering);
  for (const int32_t rank : {0, 2, 3}) shell.exit_worker(id, rank, kExitPeerLost, 0, 17);
  shell.settle();
  end_workers(0, SIGTERM);
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("data became shorter"));
  EXPECT_THAT(job().reason, HasSubstr("the last step is saved"));
}

TEST_F(LastGeneration, OfAnAccusedStateSavesItApart) {
  shell.feed(BadStepFound{id, "n0", job().generation, 1, 18, 17, 0, BadStepFinding::kNotFinite,
                          BadStepVerdict::kSameResult, BadStepOutcome::kStopped, -1, "loss nan"});
  end_workers(kExitDoNotRestart, 0, "step 18: loss nan");
  ASSERT_EQ(job().state, JobState::kRecovering);
  shell.settle_kind("StopWorkers");
  shell.settle_kind("FindCheckpoint");
  shell.settle_kind("RecordGeneration");
  const auto starts = shell.open(ActionKind::kStartWorkers);
  ASSERT_FALSE(starts.empty());
  EXPECT_TRUE(std::get<StartWorkers>(starts[0]->body).suspect);
  shell.settle();
  end_workers(0, SIGTERM);
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("saved as /ckpt/demo/suspect/step-17.g3"));
}

// The workers that have left their generation wait for the next one, and save nothing by
// themselves.
TEST_F(LastGeneration, FollowsACancellationDuringARecovery) {
  shell.exit_worker(id, 0, kExitStorage, 0, 17, "cannot read /data: Input/output error");
  for (const int32_t rank : {1, 2, 3}) shell.exit_worker(id, rank, kExitPeerLost, 0, 17);
  shell.settle_kind("StopWorkers");
  ASSERT_EQ(job().state, JobState::kRecovering);
  shell.feed(CancelRequested{id, 1000});
  EXPECT_STREQ(shown_state(job()), "STOPPING");
  shell.settle();
  end_workers(0, SIGTERM);
  EXPECT_EQ(job().state, JobState::kCancelled);
  EXPECT_EQ(job().reason, "cancelled by uid 1000; the last step is saved as step-17.g3");
}

// The consequence was reported first, and no restart was left for its cause.
TEST_F(LastGeneration, FollowsAnErrorThatIsToldAfterItsConsequence) {
  shell.exit_worker(id, 0, kExitPeerLost, 0, 17);
  ASSERT_TRUE(job().ending.awaits_cause);
  shell.exit_worker(id, 1, kExitDoNotRestart, 0, 17, "data became shorter");
  for (const int32_t rank : {2, 3}) shell.exit_worker(id, rank, kExitPeerLost, 0, 17);
  shell.settle();
  ASSERT_EQ(job().state, JobState::kRecovering);
  end_workers(0, SIGTERM);
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("data became shorter"));
  EXPECT_THAT(job().reason, HasSubstr("the last step is saved as step-17.g3"));
}

TEST_F(LastGeneration, FollowsACancellationWhileACauseIsAwaited) {
  for (const int32_t rank : {0, 1, 2, 3}) shell.exit_worker(id, rank, kExitPeerLost, 0, 17);
  ASSERT_TRUE(job().ending.awaits_cause);
  shell.feed(CancelRequested{id, 1000});
  shell.settle();
  ASSERT_EQ(job().state, JobState::kRecovering);
  end_workers(0, SIGTERM);
  EXPECT_EQ(job().state, JobState::kCancelled);
  EXPECT_EQ(job().reason, "cancelled by uid 1000; the last step is saved as step-17.g3");
}

TEST_F(LastGeneration, IsTriedOnce) {
  ASSERT_NO_FATAL_FAILURE(spend_budget());
  shell.settle();
  shell.exit_worker(id, 1, 0, SIGKILL, 17);
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("could not be saved: worker 1 on n0 died of SIGKILL"));
}

TEST_F(LastGeneration, HasTheTimeOfALastCheckpoint) {
  ASSERT_NO_FATAL_FAILURE(spend_budget());
  shell.settle();
  shell.pass(job().limits.last_checkpoint_ms + 1);
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("did not save within 25 s"));
}

TEST_F(LastGeneration, WaitsForNoNode) {
  ASSERT_NO_FATAL_FAILURE(spend_budget());
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "its holder is gone"});
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("could not be saved: "));
}

// Its memory ended with the node, so nothing is left to save.
TEST_F(LastGeneration, IsNoneWithoutMemoryAndTheJobSaysSo) {
  JobSpec spec = small_job("other");
  spec.recovery.max_restarts = 0;
  const JobId other = shell.submit(spec);
  shell.settle();
  shell.progress(other, 12);
  shell.feed(CheckpointCommitted{other, shell.job(other).generation, 10});
  shell.feed(NodeLost{other, "n1", shell.node(other, "n1").boot_id, "its holder is gone"});
  EXPECT_EQ(shell.job(other).state, JobState::kFailed);
  EXPECT_THAT(shell.job(other).reason,
              HasSubstr("; no checkpoint is known to have the steps after step 10"));
}

// The spare that was to take the ranks of a broken node is lost, too. Such a job said nothing of
// its steps.
TEST_F(LastGeneration, IsNoneWithoutAPlaceForRanksAndTheJobSaysSo) {
  JobSpec spec = small_job("other");
  spec.spares = 1;
  spec.recovery.on_node_loss = {"spare"};
  const JobId other = shell.submit(spec);
  shell.settle();
  shell.progress(other, 12);
  shell.feed(CheckpointCommitted{other, shell.job(other).generation, 10});
  shell.feed(HardwareFaultFound{other, "n0", shell.node(other, "n0").boot_id, "Xid 79", "", true});
  shell.feed(NodeLost{other, "n2", shell.node(other, "n2").boot_id, "its holder is gone"});
  shell.settle_kind("StopWorkers");
  EXPECT_EQ(shell.job(other).state, JobState::kFailed);
  EXPECT_THAT(shell.job(other).reason, HasSubstr("nothing can take its place"));
  EXPECT_THAT(shell.job(other).reason,
              HasSubstr("; no checkpoint is known to have the steps after step 10"));
}

TEST_F(LastGeneration, IsLeftOutWhereTheNewestStepIsDurable) {
  shell.feed(CheckpointCommitted{id, job().generation, 17});
  shell.exit_worker(id, 0, 0, SIGKILL, 17);
  EXPECT_EQ(job().state, JobState::kFailed);
}

// The save took longer than the workers had: people hear which step is lost, and why.
TEST_F(LastGeneration, IsNoneAfterAStopThatIsTooShort) {
  shell.feed(CancelRequested{id, 1000});
  end_workers(0, SIGKILL);
  shell.settle();
  EXPECT_EQ(job().state, JobState::kCancelled);
  EXPECT_EQ(job().reason,
            "cancelled by its owner or an operator; step 17 is in no checkpoint (there is none): "
            "the workers did not save within 25 s (limits.last_checkpoint)");
}

// The directory is away, and the workers gave up in order.
TEST_F(LastGeneration, IsNoneAfterAStopThatCannotSave) {
  shell.feed(CheckpointCommitted{id, job().generation, 15});
  shell.feed(CancelRequested{id, 1000});
  end_workers(0, SIGTERM);
  shell.settle();
  EXPECT_EQ(job().state, JobState::kCancelled);
  EXPECT_EQ(job().reason,
            "cancelled by its owner or an operator; step 17 is in no checkpoint (the newest is of "
            "step 15): the workers could not write it, see hpctl logs 1");
}

TEST_F(LastGeneration, IsNotMissedAfterAStopThatSaves) {
  shell.feed(CancelRequested{id, 1000});
  shell.feed(CheckpointCommitted{id, job().generation, 17});
  end_workers(0, SIGTERM);
  shell.settle();
  EXPECT_EQ(job().reason, "cancelled by its owner or an operator");
}

// The time limit comes while storage is waited for. The workers are idle or gone, and only memory
// has the last steps.
class LimitInARecovery : public LastGeneration {
 protected:
  void SetUp() override {
    JobSubmitted submitted;
    submitted.spec = small_job("demo");
    submitted.spec.slurm.requeue_at_limit = true;
    submitted.uid = 1000;
    submitted.backend.requeues = true;
    shell.feed(submitted);
    id = shell.state.jobs.begin()->first;
    shell.settle();
    shell.progress(id, 17);
    shell.seals.own = {{17, 7, job().generation.value}};
    shell.exit_worker(id, 0, kExitStorage, 0, 17, "cannot read /data: Input/output error");
    for (const int32_t rank : {1, 2, 3}) shell.exit_worker(id, rank, kExitPeerLost, 0, 17);
    shell.settle_kind("StopWorkers");
    ASSERT_EQ(job().state, JobState::kRecovering);
    shell.feed(CancelRequested{id, 1000, "the time limit has come", true});
    EXPECT_TRUE(job().ending.requeues);
  }
  std::string cause_of(const std::string& type) const {
    const auto told = std::find_if(shell.log.rbegin(), shell.log.rend(),
                                   [&](const LogEntry& entry) { return entry.type == type; });
    return told == shell.log.rend() ? "" : told->cause;
  }
};

TEST_F(LimitInARecovery, SavesWhatMemoryHasAndRequeues) {
  EXPECT_STREQ(shown_state(job()), "RECOVERING") << "it does not end";
  EXPECT_THAT(job().reason, HasSubstr("then the job goes back to the queue"));
  shell.restart();
  shell.settle();
  EXPECT_EQ(job().start_step, 17U);
  shell.feed(CheckpointCommitted{id, job().generation, 17});
  end_workers(0, SIGTERM);
  EXPECT_THAT(job().reason, HasSubstr("the last step is saved as step-17.g2"));
  EXPECT_EQ(job().ending.reason, "");
  shell.settle();
  EXPECT_EQ(job().stage, PlanStage::kRequeue);
  EXPECT_THAT(cause_of("RequeueAtLimit"), Not(HasSubstr("in no checkpoint")));
}

// There is no second attempt, and no time for one: the queue gets the job, and people the reason.
TEST_F(LimitInARecovery, RequeuesWhereMemoryCannotBeSaved) {
  shell.settle();
  end_workers(0, SIGKILL);
  EXPECT_THAT(cause_of("JobRecovering"), HasSubstr("could not be saved: worker 0 on n0 died"));
  shell.settle();
  EXPECT_EQ(job().stage, PlanStage::kRequeue);
  EXPECT_THAT(cause_of("RequeueAtLimit"), HasSubstr("step 17 is in no checkpoint"));
}

// The owner's word counts more than the queue. The limit is told more than once.
TEST_F(LimitInARecovery, SavesBeforeACancellationToo) {
  shell.feed(CancelRequested{id, 1000, "the time limit has come", true});
  shell.feed(CancelRequested{id, 1000});
  EXPECT_STREQ(shown_state(job()), "STOPPING");
  shell.settle();
  end_workers(0, SIGTERM);
  EXPECT_EQ(job().state, JobState::kCancelled);
  EXPECT_EQ(job().reason, "cancelled by uid 1000; the last step is saved as step-17.g2");
}

}  // namespace
}  // namespace hpctl::core
