// SPDX-License-Identifier: Apache-2.0
// Faults of workers and nodes, and what the core makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "common/worker/worker_abi.h"
#include "controller/core/explain.h"
#include "controller/core/last_generation.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::HasSubstr;

class Recovery : public ::testing::Test {
 protected:
  void SetUp() override {
    id = shell.submit(small_job("demo"));
    shell.settle();
    shell.progress(id, 1);
    ASSERT_EQ(job().state, JobState::kRunning);
  }
  const Job& job() const { return shell.job(id); }

  FakeShell shell;
  JobId id;
};

TEST_F(Recovery, FirstGenerationRunsWithoutStopping) {
  EXPECT_EQ(job().generation, Generation{1});
  for (const LogEntry& entry : shell.log) EXPECT_NE(entry.type, "StopWorkers");
  EXPECT_EQ(shell.slot(id, 3).node, "n1");
  EXPECT_EQ(shell.slot(id, 3).state, SlotState::kRunning);
}

// A rank's SIGKILL was reported 2 ms after the peer that lost it. The job had ended with "worker 0
// lost a peer", and the report of the cause was refused.
TEST(RestartBudget, JobEndsWithACauseThatFollowsItsConsequence) {
  for (const bool is_reported : {true, false}) {
    FakeShell shell;
    JobSpec spec = small_job("demo");
    spec.recovery.max_restarts = 1;
    const JobId id = shell.submit(spec);
    shell.settle();
    shell.progress(id, 1);
    shell.exit_worker(id, 2, 0, SIGKILL, 10);
    shell.settle();
    shell.progress(id, 11);
    shell.exit_worker(id, 0, kExitPeerLost, 0, 17);
    EXPECT_EQ(shell.job(id).state, JobState::kRecovering);
    if (is_reported) shell.exit_worker(id, 3, 0, SIGKILL, 17);
    shell.settle();
    EXPECT_EQ(shell.job(id).state, JobState::kFailed);
    EXPECT_THAT(shell.job(id).reason, HasSubstr("the restart budget is spent"));
    EXPECT_THAT(shell.job(id).reason,
                HasSubstr(is_reported ? "last: worker 3 on n1 died of SIGKILL at step 17"
                                      : "last: worker 0 on n0 lost a peer at step 17"));
  }
}

// For the metrics of storage: how long a job waited in all, and for whom.
TEST_F(Recovery, WaitForStorageIsCounted) {
  shell.exit_worker(id, 2, kExitStorage, 0, 17, "cannot read /data: Input/output error");
  const int64_t since_ms = job().storage_since_ms;
  EXPECT_GT(since_ms, 0);
  EXPECT_EQ(job().storage_errors_worker, 1);
  shell.settle_kind("StopWorkers");
  shell.pass(1000);
  const auto search = shell.open(ActionKind::kFindCheckpoint);
  ASSERT_EQ(search.size(), 1U);
  shell.feed(ActionFailed{search[0]->id, id, "", "cannot list /ckpt: Stale file handle", false});
  EXPECT_EQ(job().storage_errors_directory, 1);
  EXPECT_EQ(job().storage_waited_ms, 0) << "the present wait is not over";
  shell.restart();
  shell.pass(40'000);
  shell.settle();
  shell.progress(id, 18);
  ASSERT_EQ(job().state, JobState::kRunning);
  EXPECT_EQ(job().storage_since_ms, 0);
  EXPECT_EQ(job().storage_waited_ms, job().running_since_ms - since_ms);
  EXPECT_GT(job().storage_waited_ms, 40'000);

  // Another one, which the end of the job ends.
  const int64_t before_ms = job().storage_waited_ms;
  shell.exit_worker(id, 2, kExitStorage, 0, 18, "cannot read /data: Input/output error");
  shell.settle_kind("StopWorkers");
  shell.pass(5000);
  shell.feed(CancelRequested{id});
  shell.settle();
  ASSERT_TRUE(has_ended(job().state));
  EXPECT_EQ(job().storage_since_ms, 0);
  EXPECT_GE(job().storage_waited_ms, before_ms + 5000);
  EXPECT_EQ(job().storage_errors_worker, 2);
}

// The label of a metric: whatever a worker reports, there are few.
TEST_F(Recovery, StorageExitsAreCountedByErrno) {
  constexpr const char* kShard = "shard-00001.safetensors";
  // Data, ledger and directory have no file within a checkpoint.
  const std::pair<const char*, int32_t> faults[] = {
      {kShard, EIO}, {kShard, EIO}, {"", EROFS}, {"manifest.json", ESTALE},
      {"", 0},       {"", EMFILE},  {kShard, -7}};
  for (const auto& [file, error] : faults) {
    const Slot& row = shell.slot(id, 2);
    shell.feed(WorkerExited{.job = id,
                            .node = row.node,
                            .boot_id = shell.node(id, row.node).boot_id,
                            .rank = Rank{2},
                            .generation = row.generation,
                            .pid = row.pid,
                            .exit_code = kExitStorage,
                            .last_step = 17,
                            .message = "words",
                            .fault = {file, 0, 0, error}});
    shell.settle_kind("StopWorkers");
    shell.pass(40'000);
    shell.settle();
  }
  const std::map<std::string, int64_t> counted = {
      {"EIO", 2}, {"EROFS", 1}, {"ESTALE", 1}, {"other", 2}, {"unknown", 1}};
  EXPECT_EQ(job().storage_exits, counted);
  shell.restart();
  EXPECT_EQ(job().storage_exits, counted);
}

// A rank lost its peer, and that was reported first. It counted as a fault, so a few outages of
// storage in a row ended the job.
TEST_F(Recovery, StorageBehindALostPeerSpendsNoRestart) {
  shell.exit_worker(id, 0, kExitPeerLost, 0, 17, "");
  ASSERT_EQ(job().restart_times_ms.size(), 1U);
  shell.exit_worker(id, 2, kExitStorage, 0, 17, "cannot read /data: Input/output error");
  EXPECT_TRUE(job().restart_times_ms.empty());
  EXPECT_EQ(job().restarts_without_progress, 0);
  EXPECT_EQ(job().storage_errors_worker, 1);
  EXPECT_GT(job().storage_since_ms, 0);
  shell.settle_kind("StopWorkers");
  EXPECT_TRUE(shell.open(ActionKind::kFindCheckpoint).empty()) << "it waits for storage first";
  shell.pass(1000);
  EXPECT_EQ(shell.open(ActionKind::kFindCheckpoint).size(), 1U);
}

// Whether the orders that are open ask for stacks.
std::vector<bool> stacks_asked(const FakeShell& shell) {
  std::vector<bool> asked;
  for (const auto& [id, action] : shell.state.outbox) {
    if (const auto* stop = std::get_if<StopWorkers>(&action.body)) asked.push_back(stop->stacks);
    if (const auto* end = std::get_if<EndNode>(&action.body)) asked.push_back(end->stacks);
  }
  return asked;
}

TEST_F(Recovery, OnlyAHangAsksForStacks) {
  using ::testing::ElementsAre;
  const auto hang = [&] { shell.feed(HangDetected{id, job().generation, "n1", Rank{2}, "why"}); };
  hang();
  EXPECT_THAT(stacks_asked(shell), ElementsAre(true, true));
  shell.settle();
  shell.progress(id, 2);
  EXPECT_EQ(job().state, JobState::kRunning);
  // The hang is not the newest fault any more.
  shell.exit_worker(id, 3, 0, 9, 17);
  EXPECT_THAT(stacks_asked(shell), ElementsAre(false, false));
  shell.settle();
  shell.progress(id, 18);
  hang();
  shell.settle();
  shell.progress(id, 19);
  // It is, but this is why they are ended.
  shell.feed(CancelRequested{id, 1000, "enough"});
  EXPECT_THAT(stacks_asked(shell), ElementsAre(false, false));
}

TEST_F(Recovery, AHangThatEndsTheJobAsksForStacksToo) {
  shell.state.jobs.at(id).spec.recovery.max_restarts = 0;
  shell.feed(HangDetected{id, job().generation, "", Rank{-1}, "why"});
  EXPECT_TRUE(ends_for_good(job())) << "memory may have steps, and is looked at first";
  EXPECT_THAT(stacks_asked(shell), ::testing::ElementsAre(true, true));
  EXPECT_THAT(job().reason, HasSubstr("the stacks in the job's directory"));
  shell.settle();
  EXPECT_EQ(job().state, JobState::kFailed);
}

TEST_F(Recovery, FinishesWhenEveryWorkerExitedWithZero) {
  for (int32_t rank = 0; rank < 3; ++rank) shell.exit_worker(id, rank, 0, 0, 100);
  EXPECT_EQ(job().state, JobState::kRunning);
  shell.exit_worker(id, 3, 0, 0, 100);
  EXPECT_EQ(job().state, JobState::kFinished);
  shell.settle();
  EXPECT_EQ(shell.node(id, "n0").state, NodeState::kEnded);
  EXPECT_TRUE(shell.state.outbox.empty());
  EXPECT_EQ(next_deadline(shell.state), std::nullopt);
}

TEST_F(Recovery, KilledWorkerLeadsToTheNextGenerationFromTheCheckpoint) {
  shell.checkpoint = "step-10.g1";
  shell.checkpoint_step = 10;
  shell.exit_worker(id, 3, 0, 9, 17);
  EXPECT_EQ(job().state, JobState::kRecovering);
  EXPECT_EQ(job().reason, "worker 3 on n1 died of SIGKILL at step 17");
  shell.now_ms += 250;
  shell.settle();
  EXPECT_EQ(job().generation, Generation{2});
  EXPECT_EQ(job().start_step, 10U);
  EXPECT_EQ(job().checkpoint, "step-10.g1");
  shell.progress(id, 11);
  EXPECT_EQ(job().state, JobState::kRunning);
  EXPECT_EQ(job().restarts, 1);
  EXPECT_EQ(job().lost_ms, 0) << "steps 12 to 17 are computed once more";
  shell.now_ms += 30;
  shell.progress(id, 17);
  EXPECT_EQ(job().lost_ms, 280);
  EXPECT_EQ(job().spent.notice_ms, 0);
  EXPECT_EQ(job().spent.decide_ms, 250);
  EXPECT_EQ(job().spent.repeat_ms, 30);
  const auto chain = explain(shell.log, id);
  EXPECT_THAT(summarize(chain), HasSubstr("SIGKILL"));
  EXPECT_EQ(chain.front().type, "WorkerExited");
  for (int rank = 0; rank < 4; ++rank) shell.exit_worker(id, rank, 0, 0, 60);
  ASSERT_EQ(job().state, JobState::kFinished);
  const auto account = explain(shell.log, id);
  EXPECT_EQ(account.front().type, "JobSubmitted");
  EXPECT_THAT(summarize(account), HasSubstr("FINISHED: "));
  EXPECT_THAT(summarize(account),
              HasSubstr("survived 1 fault: worker 3 on n1 died of SIGKILL at step 17"));
}

// One node whose mount was missing condemned every checkpoint within 5 s, and the job began anew.
class DamageClaims : public Recovery {
 protected:
  void SetUp() override {
    Recovery::SetUp();
    shell.feed(CheckpointCommitted{id, job().generation, 20});
    shell.checkpoint = "step-20.g1";
    shell.checkpoint_step = 20;
    shell.exit_worker(id, 3, 0, 9, 27);
    shell.settle();
  }
  void claim(int32_t rank) {
    shell.exit_worker(id, rank, kExitCheckpointDamaged, 0, 20, "shard-00002.safetensors is gone");
  }
};

TEST_F(DamageClaims, FalseClaimCondemnsNothing) {
  shell.claims_are_false = true;
  claim(2);
  EXPECT_EQ(job().claim.checkpoint, "step-20.g1");
  EXPECT_EQ(job().claim.node, "n1");
  shell.settle();
  EXPECT_TRUE(job().damaged.empty());
  EXPECT_EQ(job().claim.checkpoint, "");
  EXPECT_EQ(job().checkpoint, "step-20.g1");
  EXPECT_EQ(shell.node(id, "n1").false_claims, 1);
  EXPECT_EQ(shell.node(id, "n0").false_claims, 0);
}

// Rule: the second reader reads only what the worker names, and in fields.
TEST_F(DamageClaims, SecondReaderIsToldThePart) {
  const FileFault part = {"shard-00002.safetensors", 512, 4096, 0};
  const Slot& row = shell.slot(id, 2);
  shell.feed(WorkerExited{.job = id,
                          .node = row.node,
                          .boot_id = shell.node(id, row.node).boot_id,
                          .rank = Rank{2},
                          .generation = row.generation,
                          .pid = row.pid,
                          .exit_code = kExitCheckpointDamaged,
                          .last_step = 20,
                          .message = "words",
                          .fault = part});
  shell.settle_kind("StopWorkers");
  shell.pass(1000);
  const auto search = shell.open(ActionKind::kFindCheckpoint);
  ASSERT_EQ(search.size(), 1U);
  EXPECT_EQ(std::get<FindCheckpoint>(search[0]->body).claim.part, part);
  shell.restart();
  EXPECT_EQ(job().claim.part, part);
}

TEST_F(DamageClaims, ConfirmedClaimTakesTheNextOlder) {
  claim(2);
  shell.checkpoint = "step-10.g1";
  shell.checkpoint_step = 10;
  shell.settle();
  EXPECT_TRUE(job().damaged.contains("step-20.g1"));
  EXPECT_EQ(job().checkpoint, "step-10.g1");
  EXPECT_EQ(shell.node(id, "n1").false_claims, 0);
}

TEST_F(DamageClaims, ClaimOutlivesTheController) {
  claim(2);
  shell.settle_kind("StopWorkers");
  shell.restart();
  const auto searches = shell.open(ActionKind::kFindCheckpoint);
  ASSERT_EQ(searches.size(), 1U);
  const DamageClaim& asked = std::get<FindCheckpoint>(searches[0]->body).claim;
  EXPECT_EQ(asked.checkpoint, "step-20.g1");
  EXPECT_EQ(asked.what, "shard-00002.safetensors is gone");
}

// Not the seed: it would give up all steps in silence.
TEST_F(DamageClaims, WithEveryCheckpointDamagedTheJobEnds) {
  claim(2);
  shell.checkpoint = "";
  shell.checkpoint_step = 0;
  shell.settle();
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("step-20.g1"));
  EXPECT_THAT(job().reason, HasSubstr("hpctl checkpoint verify"));
  EXPECT_THAT(job().reason, HasSubstr("--fresh"));
}

// A directory that was emptied by hand started from the seed in silence.
TEST_F(Recovery, CommittedCheckpointsThatAreGoneEndTheJob) {
  shell.lost_checkpoint = "step-20.g1";
  shell.exit_worker(id, 0, 0, 9, 5);
  shell.settle();
  EXPECT_EQ(job().state, JobState::kFailed);
  EXPECT_THAT(job().reason, HasSubstr("where step-20.g1 was committed"));
  EXPECT_THAT(job().reason, HasSubstr("--fresh"));
}

// The newest one was deleted by hand. The older one is sound, so the job goes on, and says so.
TEST_F(Recovery, LostCheckpointIsToldWhereAnOlderOneIsLeft) {
  shell.checkpoint = "step-10.g1";
  shell.checkpoint_step = 10;
  shell.lost_checkpoint = "step-20.g1";
  shell.exit_worker(id, 0, 0, 9, 25);
  shell.settle();
  shell.progress(id, 11);
  EXPECT_EQ(job().state, JobState::kRunning);
  EXPECT_EQ(job().start_step, 10U);
  const auto chain = explain(shell.log, id);
  const auto told = std::find_if(chain.begin(), chain.end(), [](const LogEntry& entry) {
    return entry.type == "CheckpointGone";
  });
  ASSERT_NE(told, chain.end());
  EXPECT_THAT(told->cause, HasSubstr("step-20.g1 was committed and is gone from /ckpt/"));
  EXPECT_THAT(told->cause, HasSubstr("the job goes on from step-10.g1"));
  EXPECT_EQ(told->step, 10U);
}

// Silence for 2 s is noticed after 2 s.
TEST_F(Recovery, LostTimeBeginsWithTheLastCompletedStep) {
  shell.now_ms += 2'000;
  shell.feed(GenerationProgressed{id, job().generation, 20, shell.now_ms - 1'900});
  shell.feed(NodeLost{id, "n1", shell.node(id, "n1").boot_id, "no heartbeat"});
  shell.now_ms += 100;
  shell.settle();
  EXPECT_EQ(lost_ms(job(), shell.now_ms), 2'000);
  shell.progress(id, 1);
  EXPECT_EQ(job().state, JobState::kRunning);
  shell.now_ms += 500;
  // Another fault before that is made good prolongs it.
  shell.exit_worker(id, 0, 0, 9, 5);
  shell.settle();
  shell.pass(500);  // without progress in between
  shell.settle();
  shell.progress(id, 20);
  EXPECT_EQ(job().lost_ms, 3'000);
  EXPECT_EQ(job().restarts, 2);
  EXPECT_EQ(job().spent.notice_ms, 1'900);
  EXPECT_EQ(job().spent.decide_ms, 100) << "until the workers of the lost node were accounted for";
  EXPECT_EQ(job().spent.wait_ms, 500) << "between two attempts, after the second fault";
  EXPECT_EQ(job().spent.repeat_ms, 500);
}

// The one that was chosen and is on record, though the rows know of a newer commit and another one
// is in the directory by the time that the last rank gets its order, from another controller.
TEST_F(Recovery, EveryRankIsToldTheSameCheckpointThoughANewerOneAppears) {
  shell.checkpoint = "step-10.g1";
  shell.checkpoint_step = 10;
  shell.feed(CheckpointCommitted{id, job().generation, 20});
  shell.exit_worker(id, 3, 0, 9, 27);
  shell.settle_kind("StopWorkers");
  shell.settle_kind("FindCheckpoint");
  shell.checkpoint = "step-20.g1";
  shell.checkpoint_step = 20;
  shell.settle_kind("RecordGeneration");
  const auto expect_orders = [&] {
    const auto orders = shell.open(ActionKind::kStartWorkers);
    EXPECT_EQ(orders.size(), 2U);
    for (const Action* order : orders) {
      EXPECT_EQ(std::get<StartWorkers>(order->body).checkpoint, "step-10.g1");
      EXPECT_EQ(std::get<StartWorkers>(order->body).start_step, 10U);
    }
  };
  expect_orders();
  shell.restart();
  expect_orders();
}

// Nobody is left to find out by a deadline of its own, each at another moment.
TEST_F(Recovery, OneExitEndsTheGenerationOnEveryNodeAtOnce) {
  shell.exit_worker(id, 3, 0, 9, 17);
  std::vector<std::string> nodes;
  for (const Action* order : shell.open(ActionKind::kStopWorkers)) {
    nodes.push_back(std::get<StopWorkers>(order->body).node);
    EXPECT_EQ(std::get<StopWorkers>(order->body).generation, Generation{1});
  }
  EXPECT_THAT(nodes, ::testing::ElementsAre("n0", "n1"));
  shell.settle_one_kind();
  EXPECT_TRUE(shell.open(ActionKind::kStopWorkers).empty());
  for (int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_NE(shell.slot(id, rank).state, SlotState::kRunning) << rank;
  }
  shell.settle();
  const auto& recorded = shell.log;
  EXPECT_EQ(std::count_if(recorded.begin(), recorded.end(),
                          [](const LogEntry& entry) { return entry.type == "RecordGeneration"; }),
            2)
      << "generation 1, and one for all that follows";
}

// `why` ended at the fault, and not at the directory that could not be read since.
TEST_F(Recovery, TheChainEndsAtWhatHoldsTheJobUpNow) {
  shell.exit_worker(id, 2, 0, 9, 17);
  shell.settle_kind("StopWorkers");
  const auto search = shell.open(ActionKind::kFindCheckpoint);
  ASSERT_EQ(search.size(), 1U);
  shell.feed(ActionFailed{search[0]->id, id, "", "cannot list /ckpt: Stale file handle", false});
  const auto chain = explain(shell.log, id);
  const auto count = [&](const std::string& type) {
    return std::count_if(chain.begin(), chain.end(),
                         [&](const LogEntry& entry) { return entry.type == type; });
  };
  EXPECT_EQ(count("JobRecovering"), 1);
  EXPECT_EQ(count("Retry"), 1);
  ASSERT_FALSE(chain.empty());
  EXPECT_EQ(chain.back().seq, shell.state.last_seq);
}

// A controller that has no rows counts the restarts of the job from its lineage, and how many of
// the newest ones were in vain.
TEST(Adoption, ACrashLoopGoesOnBeingCountedBySuccessors) {
  std::vector<GenerationRecord> lineage;
  const auto record = [&](uint64_t start_step, int64_t restarts_used) {
    GenerationRecord next;
    next.parent = lineage.size();
    next.generation = next.parent + 1;
    next.start_step = start_step;
    next.restarts_used = restarts_used;
    next.created_wall_ms = 1'000 * restarts_used;
    for (int32_t rank = 0; rank < 4; ++rank) {
      next.members.push_back({rank, rank < 2 ? "n0" : "n1", ""});
    }
    lineage.push_back(next);
  };
  record(0, 0);
  record(10, 1);
  record(20, 2);
  for (int64_t in_vain = 1; in_vain <= kMaxRestartsWithoutProgress; ++in_vain) {
    record(20, 2 + in_vain);
  }
  JobAdopted adopted;
  fill_from_lineage(adopted, lineage, 10'000);
  EXPECT_EQ(adopted.restarts, 2 + kMaxRestartsWithoutProgress);
  EXPECT_EQ(adopted.restarts_without_progress, kMaxRestartsWithoutProgress);
  EXPECT_THAT(adopted.restart_ages_ms, ::testing::ElementsAre(9'000, 8'000, 7'000, 6'000, 5'000));

  FakeShell shell;
  adopted.job = JobId{1};
  adopted.spec = small_job("demo");
  adopted.uid = 1000;
  adopted.nodes = {"n0", "n1"};
  shell.feed(adopted);
  shell.feed(NodeLost{adopted.job, "n1", "", "it is not there"});
  EXPECT_EQ(shell.job(adopted.job).state, JobState::kFailed);
  EXPECT_THAT(shell.job(adopted.job).reason, HasSubstr("no progress past step 20"));
}

// Two nodes; n1 is lost, and its launch fails for the storage that its directory is on.
class StorageAtALaunch : public ::testing::Test {
 protected:
  void SetUp() override {
    JobSpec spec = small_job("demo");
    spec.limits.storage_ms = 600'000;
    id_ = shell_.submit(spec);
    shell_.settle();
    shell_.progress(id_, 1);
    shell_.feed(NodeLost{id_, "n1", shell_.node(id_, "n1").boot_id, "its holder exited"});
    shell_.settle_kind("StopWorkers");
    attempts_ = shell_.node(id_, "n1").launch_attempts;
  }
  std::vector<const Action*> launches() const { return shell_.open(ActionKind::kLaunchNode); }
  // Until `ms` have passed, or nothing more is launched.
  void fail_for(int64_t ms) {
    const int64_t end = shell_.now_ms + ms;
    while (shell_.now_ms < end && !launches().empty()) {
      ActionFailed failed{launches().at(0)->id, id_, "n1", "Input/output error"};
      failed.storage = true;
      shell_.feed(failed);
      EXPECT_TRUE(launches().empty());
      // The order is answered at once: limits.launch would count it.
      const int64_t latest = shell_.now_ms + kBackoffMaxMs;
      while (launches().empty() && shell_.now_ms < latest) shell_.pass(kBackoffBaseMs);
    }
  }

  FakeShell shell_;
  JobId id_;
  int64_t attempts_ = 0;  // with the first launch that fails
};

TEST_F(StorageAtALaunch, IsNoAttemptAndSpendsNoRestart) {
  fail_for(300'000);
  EXPECT_EQ(shell_.job(id_).state, JobState::kRecovering);
  EXPECT_THAT(shell_.job(id_).reason, HasSubstr("waiting for storage"));
  ASSERT_EQ(launches().size(), 1U);
  EXPECT_EQ(shell_.node(id_, "n1").launch_attempts, attempts_);
  shell_.settle();
  shell_.progress(id_, 2);
  EXPECT_EQ(shell_.job(id_).state, JobState::kRunning);
  EXPECT_EQ(shell_.job(id_).restarts, 1) << "the lost node's";
  EXPECT_EQ(shell_.job(id_).storage_since_ms, 0);
}

TEST_F(StorageAtALaunch, IsWaitedForAsLongAsTheLimitSays) {
  fail_for(700'000);
  EXPECT_EQ(shell_.job(id_).state, JobState::kFailed);
  EXPECT_THAT(shell_.job(id_).reason, HasSubstr("storage was not back within"));
}

}  // namespace
}  // namespace hpctl::core
