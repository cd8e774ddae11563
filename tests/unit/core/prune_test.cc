// SPDX-License-Identifier: Apache-2.0
// When the core orders the deletion of older checkpoints: only while a job trains, and never
// between FindCheckpoint and the first step of the generation that starts from what was found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/worker/worker_abi.h"
#include "controller/core/codec.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Prune : public ::testing::Test {
 protected:
  void SetUp() override {
    id_ = shell_.submit(small_job("demo"));
    shell_.settle();
    shell_.progress(id_, 1);
    ASSERT_EQ(job().state, JobState::kRunning);
  }
  const Job& job() const { return shell_.job(id_); }
  void commit(uint64_t step) { shell_.feed(CheckpointCommitted{id_, job().generation, step}); }
  void disk_full() { shell_.feed(CheckpointRoomNeeded{id_, job().generation}); }
  std::vector<const Action*> orders() const { return shell_.open(ActionKind::kPruneCheckpoints); }
  const PruneCheckpoints& order() const { return std::get<PruneCheckpoints>(orders().at(0)->body); }
  std::string told(const std::string& type) const {
    std::string causes;
    for (const LogEntry& entry : shell_.log) {
      if (entry.type == type) causes += entry.cause + "\n";
    }
    return causes;
  }

  FakeShell shell_;
  JobId id_;
};

TEST_F(Prune, FollowsACommit) {
  EXPECT_THAT(orders(), IsEmpty());
  commit(10);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().generation, job().generation);
  EXPECT_FALSE(order().for_room);
  commit(20);
  EXPECT_THAT(orders(), SizeIs(1)) << "one at a time";
  shell_.pruned = {{}, {}, "step-20.g1", {"step-10.g1"}};
  EXPECT_EQ(job().pruning.verified_wall_ms, 0);
  shell_.settle_kind("PruneCheckpoints");
  EXPECT_THAT(orders(), SizeIs(1)) << "the second commit came after the first order";
  const int64_t verified_ms = job().pruning.verified_wall_ms;
  EXPECT_GT(verified_ms, 0);
  shell_.pass(1000);
  shell_.pruned = {};
  shell_.settle_kind("PruneCheckpoints");
  EXPECT_EQ(job().pruning.verified_wall_ms, verified_ms) << "nothing was read again";
  shell_.restart();
  EXPECT_EQ(job().pruning.verified_wall_ms, verified_ms);
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_EQ(told("CheckpointsPruned"), "step-20.g1 is verified; deleted: step-10.g1\n");
}

// Step 40 of a generation that is being stopped became durable after the controller had chosen step
// 30, and with keep: 1 its worker deleted step 30.
TEST_F(Prune, LateCommitWaitsForTheNextFirstStep) {
  shell_.checkpoint = "step-30.g1";
  shell_.checkpoint_step = 30;
  shell_.exit_worker(id_, 3, 0, 9, 41);
  shell_.settle_kind("StopWorkers");
  shell_.settle_kind("FindCheckpoint");
  commit(40);
  EXPECT_THAT(orders(), IsEmpty());
  shell_.settle_kind("RecordGeneration");
  EXPECT_THAT(orders(), IsEmpty());
  shell_.settle();
  EXPECT_EQ(job().checkpoint, "step-30.g1");
  EXPECT_THAT(orders(), IsEmpty()) << "no step of the new generation yet";
  shell_.progress(id_, 31);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().generation, Generation{2});
}

TEST_F(Prune, RecoveryWithdrawsTheOrder) {
  commit(10);
  ASSERT_THAT(orders(), SizeIs(1));
  const ActionId withdrawn = orders()[0]->id;
  shell_.exit_worker(id_, 3, 0, 9, 12);
  EXPECT_THAT(orders(), IsEmpty());
  shell_.feed(CheckpointsPruned{withdrawn, id_, "step-10.g1", {"step-5.g1"}});
  EXPECT_THAT(told("Refused"), HasSubstr("was withdrawn or answered before"));
}

TEST_F(Prune, OutlivesTheController) {
  commit(10);
  shell_.restart();
  EXPECT_THAT(orders(), SizeIs(1)) << "it is in the outbox";
  shell_.exit_worker(id_, 3, 0, 9, 12);
  shell_.settle_kind("StopWorkers");
  commit(15);
  shell_.restart();
  EXPECT_TRUE(job().pruning.due) << "and what is due in the job's row";
}

TEST_F(Prune, FullDiskAsksForRoomOnceForEachFailure) {
  disk_full();
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_TRUE(order().for_room);
  shell_.settle();
  EXPECT_THAT(orders(), IsEmpty());
  disk_full();
  EXPECT_THAT(orders(), SizeIs(1));
  shell_.settle();
  commit(10);
  EXPECT_FALSE(order().for_room);
  shell_.feed(CheckpointRoomNeeded{id_, Generation{7}});
  EXPECT_THAT(told("Refused"), HasSubstr("not the present one"));
}

// Neither is a fault of the job: training goes on, and what is there stays.
TEST_F(Prune, DamageAndFailedStorageKeepEverything) {
  commit(10);
  shell_.pruned = {{}, {}, "", {}, "/ckpt/step-10.g1/shard-00000.safetensors is damaged"};
  shell_.settle();
  EXPECT_THAT(told("CheckpointsPruned"), HasSubstr("shard-00000.safetensors is damaged"));
  commit(20);
  shell_.feed(ActionFailed{orders().at(0)->id, id_, "", "cannot read /ckpt: Input/output error"});
  EXPECT_EQ(told("CheckpointsKept"),
            "older checkpoints stay: cannot read /ckpt: Input/output error; tried again after the "
            "next save\n");
  EXPECT_EQ(job().state, JobState::kRunning);
  EXPECT_EQ(job().stage, PlanStage::kNone);
  EXPECT_THAT(orders(), IsEmpty());
  commit(30);
  EXPECT_THAT(orders(), SizeIs(1));
}

// As when another job has taken the directory.
TEST_F(Prune, PermanentFailureDoesNotEndTheJob) {
  commit(10);
  shell_.feed(ActionFailed{orders().at(0)->id, id_, "", "the directory is another job's", true});
  EXPECT_EQ(job().state, JobState::kRunning);
}

TEST_F(Prune, UnfinishedSavesGoAfterTheLimit) {
  commit(10);
  EXPECT_FALSE(order().unfinished);
  shell_.settle();
  shell_.now_ms += job().limits.directory_ms;
  commit(20);
  EXPECT_TRUE(order().unfinished);
}

// The last checkpoint is reported just before the last worker ends.
TEST_F(Prune, FinishedJobKeepsNoMoreThanItSays) {
  commit(10);
  commit(20);
  for (int32_t rank = 0; rank < 4; ++rank) shell_.exit_worker(id_, rank, 0, 0, 20);
  ASSERT_EQ(job().state, JobState::kFinished);
  ASSERT_THAT(orders(), SizeIs(1));
  shell_.settle_kind("PruneCheckpoints");
  ASSERT_THAT(orders(), SizeIs(1)) << "that of the second commit";
  shell_.settle();
  EXPECT_TRUE(shell_.state.outbox.empty());
}

TEST(PruneOfACommand, ItsCheckpointsAreItsOwn) {
  FakeShell shell;
  const JobId id = shell.submit(small_job("demo", true));
  shell.settle();
  shell.feed(CheckpointCommitted{id, Generation{1}, 10});
  EXPECT_THAT(shell.open(ActionKind::kPruneCheckpoints), IsEmpty());
}

// Three nodes that can read; the controller runs on n0. Step 20 is to be verified before step 10
// goes.
class VerifiedPrune : public Prune {
 protected:
  void SetUp() override {
    shell_.agents_confirm = true;
    shell_.controller_node = "n0";
    JobSpec spec = small_job("demo");
    spec.spares = 1;
    spec.checkpoint.verify_before_delete = VerifyDepth::kSizes;
    id_ = shell_.submit(spec);
    shell_.settle();
    shell_.progress(id_, 1);
    ASSERT_EQ(job().state, JobState::kRunning);
    shell_.pruned = {{}, {}, "step-20.g1", {"step-10.g1"}};
  }
  void commit_and_name(uint64_t step = 20) {
    commit(step);
    ASSERT_THAT(orders(), SizeIs(1));
    ASSERT_TRUE(order().asks);
    shell_.settle_kind("PruneCheckpoints");
  }
  const ConfirmDamage* reading() const {
    const auto open = shell_.open(ActionKind::kConfirmDamage);
    return open.size() == 1 ? &std::get<ConfirmDamage>(open[0]->body) : nullptr;
  }
  // Who is to verify; "" = no node.
  std::string reader() const { return reading() == nullptr ? "" : reading()->node; }
  void answer(DamageVerdict verdict, const std::string& what = "") {
    const auto open = shell_.open(ActionKind::kConfirmDamage);
    ASSERT_THAT(open, SizeIs(1));
    shell_.feed(DamageAnswered{open[0]->id, id_, reader(), verdict, what});
  }
};

TEST_F(VerifiedPrune, NodeReadsBeforeAnythingIsDeleted) {
  commit_and_name();
  EXPECT_THAT(orders(), IsEmpty()) << "nothing is deleted yet";
  ASSERT_EQ(reader(), "n1") << "not the controller's";
  EXPECT_TRUE(reading()->before_delete);
  EXPECT_EQ(reading()->claim.checkpoint, "step-20.g1");
  EXPECT_EQ(reading()->newest, job().generation);
  commit(30);
  EXPECT_THAT(orders(), IsEmpty()) << "one deletion at a time";
  answer(DamageVerdict::kSound);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_FALSE(order().asks);
  EXPECT_EQ(order().verified, "step-20.g1");
  EXPECT_EQ(order().verified_by, "n1");
  shell_.settle_kind("PruneCheckpoints");
  EXPECT_EQ(told("CheckpointsPruned"), "step-20.g1 is verified by n1; deleted: step-10.g1\n");
  EXPECT_EQ(told("ConfirmDamage") + told("DamageAnswered"), "") << "all is as usual";
  EXPECT_GT(job().pruning.verified_wall_ms, 0);
  ASSERT_THAT(orders(), SizeIs(1)) << "step 30 came meanwhile";
  EXPECT_TRUE(order().asks);
}

TEST_F(VerifiedPrune, NothingToDeleteAsksNoNode) {
  shell_.pruned = {};
  commit_and_name();
  EXPECT_EQ(reader(), "");
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_EQ(told("CheckpointsPruned"), "");
}

TEST_F(VerifiedPrune, RoomIsStillNeededAfterTheVerification) {
  disk_full();
  ASSERT_TRUE(order().asks && order().for_room);
  shell_.settle_kind("PruneCheckpoints");
  answer(DamageVerdict::kSound);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_TRUE(order().for_room);
  shell_.settle_kind("PruneCheckpoints");
  EXPECT_THAT(orders(), IsEmpty());
}

TEST_F(VerifiedPrune, UnreadableProvesNothingAndAnotherReads) {
  commit_and_name();
  answer(DamageVerdict::kUnreadable, "Input/output error");
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_EQ(reader(), "n2");
  EXPECT_EQ(told("DamageAnswered"), "n1 cannot read step-20.g1 again: Input/output error\n");
  shell_.feed(ActionFailed{shell_.open(ActionKind::kConfirmDamage)[0]->id, id_, "n2", "no memory"});
  EXPECT_EQ(reader(), "") << "two were asked: now the controller";
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_FALSE(order().asks);
  EXPECT_EQ(order().verified, "") << "the controller reads before it deletes";
  EXPECT_THAT(told("ConfirmDamage"), HasSubstr("the controller reads step-20.g1 before"));
  EXPECT_EQ(job().storage_since_ms, 0);
  EXPECT_EQ(job().state, JobState::kRunning);
  shell_.settle();
  EXPECT_EQ(told("CheckpointsPruned"), "step-20.g1 is verified; deleted: step-10.g1\n");
  EXPECT_EQ(told("DamageNotConfirmed"), "");
}

TEST_F(VerifiedPrune, LateNodesAreFollowedByTheController) {
  commit_and_name();
  shell_.pass(job().limits.directory_ms - 1);
  EXPECT_EQ(reader(), "n1");
  shell_.pass(1);
  EXPECT_EQ(reader(), "n2");
  EXPECT_THAT(told("DeadlinePassed"), HasSubstr("n1 did not read step-20.g1 again within 60 s"));
  EXPECT_THAT(orders(), IsEmpty());
  shell_.pass(job().limits.directory_ms);
  EXPECT_EQ(reader(), "");
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().verified, "");
  EXPECT_EQ(job().state, JobState::kRunning);
}

// Some time for the bytes, however large the checkpoint is.
TEST(VerifiedPruneLimit, BytesTakeLongerThanSizes) {
  Job job;
  ConfirmDamage order;
  EXPECT_EQ(reading_limit_ms(job, order), job.limits.directory_ms) << "a claim is about a part";
  order.before_delete = true;
  EXPECT_EQ(reading_limit_ms(job, order), job.limits.first_step_ms);
  job.spec.checkpoint.verify_before_delete = VerifyDepth::kSizes;
  EXPECT_EQ(reading_limit_ms(job, order), job.limits.directory_ms);
}

TEST_F(VerifiedPrune, LostNodeIsFollowedByTheController) {
  commit_and_name();
  answer(DamageVerdict::kUnreadable, "away");
  ASSERT_EQ(reader(), "n2") << "a spare, whose loss is no fault of the job";
  shell_.feed(NodeLost{id_, "n2", shell_.node(id_, "n2").boot_id, "its holder exited"});
  EXPECT_EQ(reader(), "");
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().verified, "");
}

// One reader's word proves no damage, and no soundness either once another one spoke.
TEST_F(VerifiedPrune, WrongNodeStopsNoDeletionAndIsToldOf) {
  commit_and_name();
  answer(DamageVerdict::kDamaged, "crc32c does not match");
  EXPECT_THAT(orders(), IsEmpty());
  ASSERT_EQ(reader(), "n2");
  answer(DamageVerdict::kSound);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().verified_by, "n2");
  EXPECT_THAT(told("DamageNotConfirmed"), HasSubstr("step-20.g1 is sound where n2 reads it"));
  EXPECT_EQ(shell_.node(id_, "n1").false_claims, 1);
  EXPECT_EQ(job().state, JobState::kRunning);
  shell_.settle();
  commit_and_name(30);
  EXPECT_EQ(reader(), "n1") << "once may happen";
  answer(DamageVerdict::kDamaged, "crc32c does not match");
  answer(DamageVerdict::kUnreadable, "away");
  ASSERT_EQ(reader(), "n0") << "the controller's node, the last choice";
  answer(DamageVerdict::kUnreadable, "away");
  ASSERT_THAT(orders(), SizeIs(1));
  shell_.settle();
  EXPECT_EQ(shell_.node(id_, "n1").false_claims, 2) << "sound for the controller";
  commit(40);
  shell_.settle_kind("PruneCheckpoints");
  EXPECT_EQ(reader(), "n2") << "n1 is not asked any more";
}

TEST_F(VerifiedPrune, DamageForTwoNodesKeepsEverything) {
  commit_and_name();
  answer(DamageVerdict::kDamaged, "crc32c does not match");
  answer(DamageVerdict::kDamaged, "it is missing");
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_EQ(reader(), "");
  EXPECT_EQ(told("CheckpointsKept"),
            "step-20.g1 is damaged for n1 and for n2, older checkpoints stay: it is missing\n");
  EXPECT_THAT(job().damaged, IsEmpty()) << "a worker that starts from it will say so";
  EXPECT_EQ(shell_.node(id_, "n1").false_claims, 0);
  commit(30);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_TRUE(order().asks);
}

TEST_F(VerifiedPrune, RecoveryWithdrawsTheVerification) {
  commit_and_name();
  const ActionId withdrawn = shell_.open(ActionKind::kConfirmDamage)[0]->id;
  shell_.exit_worker(id_, 3, 0, 9, 21);
  EXPECT_EQ(reader(), "");
  EXPECT_EQ(job().pruning.verification.claim.checkpoint, "");
  const auto late = shell_.feed(DamageAnswered{withdrawn, id_, "n1", DamageVerdict::kSound});
  EXPECT_THAT(late.refusal, HasSubstr("was withdrawn or answered before"));
  shell_.settle();
  shell_.progress(id_, 22);
  EXPECT_THAT(orders(), IsEmpty()) << "the next commit gives another order";
}

// Step 20 is undone, and saved again under the same name.
TEST_F(VerifiedPrune, RollbackWithdrawsTheVerification) {
  commit_and_name();
  BadStepFound bad;
  bad.job = id_;
  bad.node = "n0";
  bad.generation = job().generation;
  bad.number = 1;
  bad.step = 25;
  bad.resumed_step = 10;
  bad.outcome = BadStepOutcome::kRolledBack;
  shell_.feed(bad);
  EXPECT_EQ(reader(), "");
  EXPECT_THAT(orders(), IsEmpty());
  shell_.pass(2 * job().limits.directory_ms);
  EXPECT_EQ(job().restarts, 0) << "its deadline is gone, too";
  commit(20);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_TRUE(order().asks);
}

// A worker's claim is read with the search, and its answer deletes nothing.
TEST_F(VerifiedPrune, ClaimOfDamageIsNoVerification) {
  commit_and_name();
  shell_.checkpoint = "step-20.g1";
  shell_.checkpoint_step = 20;
  shell_.exit_worker(id_, 0, 0, 9, 27);
  shell_.settle();
  shell_.exit_worker(id_, 2, kExitCheckpointDamaged, 0, 20, "a shard is gone");
  shell_.settle_kind("StopWorkers");
  ASSERT_NE(reading(), nullptr);
  EXPECT_FALSE(reading()->before_delete);
  answer(DamageVerdict::kSound);
  EXPECT_THAT(orders(), IsEmpty());
}

TEST_F(VerifiedPrune, VerificationOutlivesTheController) {
  commit_and_name();
  shell_.training_moves = true;
  shell_.restart();
  ASSERT_EQ(reader(), "n1");
  shell_.pass(job().limits.directory_ms);
  EXPECT_EQ(job().pruning.verification.claim.asked, std::vector<std::string>{"n1"})
      << "its deadline does, too";
}

// Its nodes end, so the controller verifies.
TEST_F(VerifiedPrune, FinishedJobDoesNotWaitForItsNodes) {
  commit_and_name();
  for (int32_t rank = 0; rank < 4; ++rank) shell_.exit_worker(id_, rank, 0, 0, 20);
  ASSERT_EQ(job().state, JobState::kFinished);
  EXPECT_EQ(reader(), "");
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_FALSE(order().asks);
  EXPECT_EQ(order().verified, "");
  shell_.settle();
  EXPECT_TRUE(shell_.state.outbox.empty());
}

TEST_F(VerifiedPrune, EndOfTheJobAnswersAnEarlierQuestion) {
  commit(20);
  ASSERT_TRUE(order().asks);
  for (int32_t rank = 0; rank < 4; ++rank) shell_.exit_worker(id_, rank, 0, 0, 20);
  ASSERT_EQ(job().state, JobState::kFinished);
  shell_.settle();
  EXPECT_TRUE(shell_.state.outbox.empty());
  EXPECT_EQ(told("CheckpointsPruned"), "step-20.g1 is verified; deleted: step-10.g1\n");
}

// A row of the release before.
TEST(PruneCodec, OlderRowHasNothingDue) {
  Job job;
  job.spec = small_job("demo");
  job.pruning = {true, true, 5, 6, {{"step-20.g1", "n1", "words", {}, {"n2"}}, "n0", true}};
  const std::string text = encode(job);
  EXPECT_EQ(encode(decode_job(text).value()), text);
  nlohmann::json row = nlohmann::json::parse(text);
  ASSERT_TRUE(row["pruning"].contains("verification"));
  row.erase("pruning");
  const auto older = decode_job(row.dump());
  ASSERT_TRUE(older.ok()) << older.error().message;
  EXPECT_FALSE(older->pruning.due);
  EXPECT_EQ(older->pruning.recorded_ms, 0);
}

}  // namespace
}  // namespace hpctl::core
