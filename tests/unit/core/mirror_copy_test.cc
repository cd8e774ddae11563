// SPDX-License-Identifier: Apache-2.0
// When the core orders a copy to the mirror, what the order names, and what its answer changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/mirrored_job.h"

namespace hpctl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(Mirrored, CommitOrdersOneCopyAtATime) {
  commit(10);
  ASSERT_THAT(orders(), SizeIs(1));
  commit(20);
  EXPECT_THAT(orders(), SizeIs(1));
  hold(20, 10);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.step, 10U);
  EXPECT_THAT(orders(), SizeIs(1)) << "the second commit came after the first order";
  hold(20, 20);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_EQ(job().mirror.behind_since_ms, 0);
}

TEST_F(Mirrored, FailedCopyLeavesTheJobAloneUntilTheNextSave) {
  commit(10);
  shell_.feed(ActionFailed{orders().at(0)->id, id_, "", "No space left on device"});
  EXPECT_EQ(job().state, JobState::kRunning);
  EXPECT_THAT(job().mirror.problem, HasSubstr("No space left"));
  shell_.pass(600'000);
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_EQ(job().restarts, 0);
  commit(20);
  EXPECT_THAT(orders(), SizeIs(1));
  EXPECT_GT(job().mirror.behind_since_ms, 0);
}

TEST_F(Mirrored, RecoveryWithdrawsTheCopyAndOrdersItAgain) {
  hold(10, 0);
  commit(10);
  kill_worker();
  EXPECT_THAT(orders(), IsEmpty());
  shell_.settle();
  EXPECT_THAT(orders(), IsEmpty()) << "no step of the new generation yet";
  shell_.progress(id_, 11);
  EXPECT_THAT(orders(), SizeIs(1));
}

TEST_F(Mirrored, UndoneStepsAreNamedUntilTheMirrorHasLetThemGo) {
  mirror_two();
  roll_back(1, 10);
  EXPECT_EQ(job().mirror.undone, (UndoneSteps{job().generation, 10}));
  EXPECT_EQ(job().mirror.step, 10U) << "what is newer there counts no more";
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().undone, job().mirror.undone);
  hold(10, 10);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.undone, UndoneSteps{});
}

// The answer to an order that does not name them says nothing about them.
TEST_F(Mirrored, FurthestRollbackIsNamedUntilItIsCarriedOut) {
  mirror_two();
  roll_back(1, 10);
  roll_back(2, 15);
  EXPECT_EQ(job().mirror.undone.step, 10U) << "step 15 of before is undone";
  EXPECT_EQ(job().mirror.step, 10U);
  roll_back(3, 5);
  EXPECT_EQ(job().mirror.undone.step, 5U);
  hold(5, 5);
  ASSERT_EQ(order().undone.step, 10U);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.undone.step, 5U);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().undone.step, 5U);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.undone, UndoneSteps{});
}

// The job would wait for a first place that is away, to give up no step that it has undone itself.
TEST_F(Mirrored, CopyThatWasUndoneMeanwhileCountsNoMore) {
  mirror_two();
  commit(30);
  ASSERT_THAT(orders(), SizeIs(1));
  roll_back(1, 10);
  hold(10, 30);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.step, 10U);
  EXPECT_EQ(job().mirror.undone.step, 10U) << "that order did not name them";
}

TEST_F(Mirrored, OrderThatHasAProblemLetsNothingGo) {
  mirror_two();
  shell_.mirror_problem = "step-10.g1 is damaged";
  hold(10, 10);
  roll_back(1, 10);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.undone.step, 10U);
  EXPECT_EQ(job().mirror.problem, "step-10.g1 is damaged");
  EXPECT_THAT(orders(), IsEmpty());
  shell_.mirror_problem.clear();
  commit(20);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().undone.step, 10U);
  hold(20, 20);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.problem, "");
}

TEST_F(Mirrored, DamagedAndUndoneAreNamedToCopyAndSearch) {
  mirror_two();
  Job& row = shell_.state.jobs.at(id_);
  row.damaged = {"step-15.g1"};
  row.mirror.undone = {job().generation, 12};
  commit(30);
  EXPECT_THAT(order().damaged, ElementsAre("step-15.g1"));
  hold(10, 20);
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  ASSERT_TRUE(search().in_mirror);
  EXPECT_THAT(search().exclude, ElementsAre("step-15.g1"));
  EXPECT_EQ(search().undone, job().mirror.undone);
  EXPECT_EQ(search().newest, job().generation);
}

TEST_F(Mirrored, BehindSinceTheFirstCommitThatIsMissing) {
  commit(10);
  const int64_t since_ms = job().mirror.behind_since_ms;
  EXPECT_EQ(since_ms, shell_.now_ms);
  shell_.feed(ActionFailed{orders().at(0)->id, id_, "", "No space left on device"});
  EXPECT_TRUE(is_told("MirrorBehind"));
  shell_.pass(5'000);
  commit(20);
  EXPECT_EQ(job().mirror.behind_since_ms, since_ms);
  shell_.mirror_problem = "the mirror is full";
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.behind_since_ms, since_ms);
}

TEST_F(Mirrored, OrderWithNothingToDoIsNotToldAndForgetsNoStep) {
  mirror_two();
  shell_.log.clear();
  commit(30);
  shell_.feed(CheckpointMirrored{orders().at(0)->id, id_});
  EXPECT_EQ(job().mirror.step, 20U);
  EXPECT_FALSE(is_told("CheckpointMirrored"));
}

TEST_F(Mirrored, LastCopyIsMadeAfterTheJobHasFinished) {
  commit(10);
  commit(20);
  for (int32_t rank = 0; rank < 4; ++rank) shell_.exit_worker(id_, rank, 0, 0, 20);
  ASSERT_EQ(job().state, JobState::kFinished);
  ASSERT_THAT(orders(), SizeIs(1));
  hold(10, 10);
  shell_.settle_kind("MirrorCheckpoint");
  ASSERT_THAT(orders(), SizeIs(1)) << "that of the second commit";
  hold(20, 20);
  shell_.settle();
  EXPECT_TRUE(shell_.state.outbox.empty());
  EXPECT_EQ(job().mirror.step, 20U);
}

// Nodes can read a copy again before older ones go.
class MirroredWithReaders : public Mirrored {
 protected:
  void adjust(JobSpec&) override {
    shell_.agents_confirm = true;
    shell_.older_copies = true;
  }
  // A copy of step 20 was made, and older ones are to go.
  void copy_and_ask() {
    hold(20, 20);
    commit(20);
    ASSERT_TRUE(order().asks);
    shell_.settle_kind("MirrorCheckpoint");
    ASSERT_THAT(orders(), IsEmpty());
    ASSERT_THAT(readings(), SizeIs(1));
  }
  std::vector<const Action*> readings() const { return shell_.open(ActionKind::kConfirmDamage); }
  const ConfirmDamage& reading() const { return std::get<ConfirmDamage>(readings().at(0)->body); }
  void answer(DamageVerdict verdict) {
    const ActionId id = readings().at(0)->id;
    const std::string node = reading().node;
    shell_.feed(DamageAnswered{id, id_, node, verdict, "crc32c does not match"});
  }
};

TEST_F(MirroredWithReaders, OlderCopiesGoAfterANodeHasReadTheNewest) {
  copy_and_ask();
  EXPECT_EQ(reading().claim.checkpoint, "/mirror/step-20.g1");
  EXPECT_TRUE(reading().before_delete);
  const std::string reader = reading().node;
  answer(DamageVerdict::kSound);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().verified, "/mirror/step-20.g1");
  EXPECT_EQ(order().verified_by, reader);
  EXPECT_TRUE(order().asks) << "for what this order copies";
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_THAT(readings(), IsEmpty());
  EXPECT_EQ(job().mirror.step, 20U);
}

TEST_F(MirroredWithReaders, DamageForTwoReadersKeepsEveryCopy) {
  copy_and_ask();
  const std::string first = reading().node;
  answer(DamageVerdict::kDamaged);
  ASSERT_THAT(readings(), SizeIs(1)) << "one reader proves nothing";
  EXPECT_NE(reading().node, first);
  EXPECT_THAT(orders(), IsEmpty());
  answer(DamageVerdict::kDamaged);
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_TRUE(is_told("CheckpointsKept"));
  EXPECT_EQ(job().mirror.verification.claim.checkpoint, "");
}

TEST_F(MirroredWithReaders, ControllerReadsWhereNoNodeCan) {
  copy_and_ask();
  answer(DamageVerdict::kUnreadable);
  answer(DamageVerdict::kUnreadable);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_FALSE(order().asks);
  EXPECT_EQ(order().verified, "");
}

TEST_F(MirroredWithReaders, FullMirrorGetsItsRoomAndThenItsCopy) {
  hold(20, 10);
  commit(20);
  CheckpointMirrored full{orders().at(0)->id, id_, "step-10.g1", 10, 0, {}, "disk full"};
  full.to_verify = "/mirror/step-10.g1";
  full.for_room = true;
  shell_.feed(full);
  ASSERT_THAT(readings(), SizeIs(1));
  answer(DamageVerdict::kSound);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_TRUE(order().for_room);
  EXPECT_EQ(order().verified, "/mirror/step-10.g1");
  hold(20, 20);
  shell_.settle_kind("MirrorCheckpoint");
  EXPECT_EQ(job().mirror.problem, "");
  EXPECT_EQ(job().mirror.step, 20U);
}

TEST_F(MirroredWithReaders, RecoveryForgetsWhatWasToBeVerified) {
  copy_and_ask();
  kill_worker();
  EXPECT_THAT(readings(), IsEmpty());
  EXPECT_EQ(job().mirror.verification.claim.checkpoint, "");
}

TEST_F(MirroredWithReaders, VerificationSurvivesTheController) {
  copy_and_ask();
  shell_.restart();
  ASSERT_THAT(readings(), SizeIs(1));
  answer(DamageVerdict::kSound);
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_EQ(order().verified, "/mirror/step-20.g1");
}

TEST_F(MirroredWithReaders, CopiesOfAJobThatHasFinishedAreReadByTheController) {
  copy_and_ask();
  for (int32_t rank = 0; rank < 4; ++rank) shell_.exit_worker(id_, rank, 0, 0, 20);
  ASSERT_EQ(job().state, JobState::kFinished);
  EXPECT_THAT(readings(), IsEmpty());
  ASSERT_THAT(orders(), SizeIs(1));
  EXPECT_FALSE(order().asks);
}

class MirroredSeldom : public Mirrored {
  void adjust(JobSpec& spec) override { spec.checkpoint.mirror.every = 30; }
};

TEST_F(MirroredSeldom, CopyWaitsForSoManySteps) {
  commit(10);
  commit(20);
  EXPECT_THAT(orders(), IsEmpty());
  commit(30);
  EXPECT_THAT(orders(), SizeIs(1));
}

}  // namespace
}  // namespace hpctl::core
