// SPDX-License-Identifier: Apache-2.0
// When a recovery starts from the mirror: only if the first place has lost a checkpoint that was
// committed, or has been away for checkpoint.mirror.after and the mirror has the newest one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/worker/worker_abi.h"
#include "tests/unit/core/mirrored_job.h"

namespace hpctl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(Mirrored, SoundFirstPlaceIsNotComparedWithTheMirror) {
  mirror_two();
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  EXPECT_THAT(searches(), IsEmpty());
  EXPECT_EQ(record().checkpoint, "step-20.g1");
}

TEST_F(Mirrored, LostCheckpointIsTakenFromTheMirror) {
  mirror_two();
  hold(10, 20);
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  ASSERT_THAT(searches(), SizeIs(1));
  EXPECT_TRUE(search().in_mirror);
  EXPECT_EQ(search().first.step, 10U);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().checkpoint, "/mirror/step-20.g1");
  EXPECT_EQ(record().start_step, 20U);
  EXPECT_FALSE(record().in_mirror);
}

TEST_F(Mirrored, OlderMirrorLosesAgainstTheFirstPlace) {
  hold(20, 20);
  commit(30);
  shell_.settle();
  hold(20, 10);
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().checkpoint, "step-20.g1");
}

// The mirror may have the lost step: giving that up needs its answer.
TEST_F(Mirrored, MirrorThatCannotBeReadIsWaitedFor) {
  mirror_two();
  hold(10, 20);
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  EXPECT_THAT(shell_.open(ActionKind::kRecordGeneration), IsEmpty());
  EXPECT_THAT(job().reason, HasSubstr("waiting for storage"));
  EXPECT_GT(job().storage_since_ms, 0);
}

TEST_F(Mirrored, MirrorThatNeverWorkedIsNotWaitedFor) {
  commit(20);
  shell_.feed(ActionFailed{orders().at(0)->id, id_, "", "Not a directory"});
  hold(10, 0);
  for (const bool hangs : {false, true}) {
    kill_worker();
    shell_.settle_kind("FindCheckpoint");
    ASSERT_TRUE(search().in_mirror);
    if (hangs) {
      shell_.pass(job().limits.directory_ms);
    } else {
      shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Not a directory"});
    }
    EXPECT_EQ(record().checkpoint, "step-10.g1");
    shell_.settle();
    shell_.progress(id_, 12);
    commit(20);
  }
}

TEST_F(Mirrored, FirstPlaceThatIsAwayIsReplacedAfterAWhile) {
  mirror_two();
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  EXPECT_THAT(searches(), IsEmpty()) << "not at once";
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  ASSERT_THAT(searches(), SizeIs(1));
  ASSERT_TRUE(search().in_mirror);
  EXPECT_TRUE(search().first.away);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().checkpoint, "/mirror/step-20.g1");
  EXPECT_TRUE(record().in_mirror) << "checkpoint.dir cannot be written";
}

// Step 30 was committed and is not in the mirror: the first place may still have it.
TEST_F(Mirrored, LaggingMirrorDoesNotReplaceAFirstPlaceThatIsAway) {
  mirror_two();
  shell_.mirror_problem = "the mirror is full";
  commit(30);
  shell_.settle();
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  ASSERT_THAT(searches(), SizeIs(1));
  ASSERT_TRUE(search().in_mirror);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_THAT(shell_.open(ActionKind::kRecordGeneration), IsEmpty());
  EXPECT_THAT(job().reason, HasSubstr("the mirror has step 20, and step 30 is in /ckpt"));
}

// Copies at peers may be older than the newest checkpoint. Memory that starts below it would give
// up step 30, which the first place may still have.
TEST_F(Mirrored, OlderMemoryDoesNotReplaceAFirstPlaceThatIsAway) {
  mirror_two();
  shell_.mirror_problem = "the mirror is full";
  commit(30);
  shell_.settle();
  end_workers_with(25);
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  ASSERT_TRUE(search().in_mirror);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_THAT(shell_.open(ActionKind::kRecordGeneration), IsEmpty());
  EXPECT_THAT(job().reason, HasSubstr("the workers' memory has step 25, and step 30 is in /ckpt"));
}

TEST_F(Mirrored, LostCheckpointIsTakenFromTheMirrorBeforeOlderMemory) {
  mirror_two();
  hold(30, 30);
  commit(30);
  shell_.settle();
  hold(20, 30);
  end_workers_with(25);
  shell_.settle_kind("FindCheckpoint");
  ASSERT_THAT(searches(), SizeIs(1));
  EXPECT_EQ(search().first.step, 20U);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().checkpoint, "/mirror/step-30.g1");
}

TEST_F(Mirrored, NewerMemoryNeedsNoMirror) {
  mirror_two();
  hold(10, 20);
  end_workers_with(25);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().start_step, 25U);
  EXPECT_EQ(record().memory_of, Generation{1});
}

// Step 20 was copied before a worker told of its commit, and the copy is damaged since.
TEST_F(Mirrored, MirroredStepIsNotGivenUpWhileFirstPlaceIsAway) {
  hold(20, 20);
  commit(10);
  shell_.settle();
  ASSERT_EQ(job().mirror.step, 20U);
  hold(20, 10);
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  ASSERT_TRUE(search().in_mirror);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_THAT(shell_.open(ActionKind::kRecordGeneration), IsEmpty());
  EXPECT_THAT(job().reason, HasSubstr("the mirror has step 10, and step 20 is in /ckpt"));
}

// The mirror has the record of generation 2, and its answer is lost. Two records of one generation
// would keep the mirror from ever being brought up to date.
TEST_F(Mirrored, NumberOfARecordInTheMirrorIsNotUsedAgain) {
  mirror_two();
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  shell_.settle_kind("FindCheckpoint");
  ASSERT_TRUE(record().in_mirror);
  EXPECT_EQ(record().generation, Generation{2});
  shell_.feed(ActionFailed{shell_.open(ActionKind::kRecordGeneration).at(0)->id, id_, "",
                           "Input/output error"});
  shell_.pass(30'000);
  ASSERT_FALSE(search().in_mirror);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_FALSE(record().in_mirror);
  EXPECT_EQ(record().generation, Generation{3});
}

// Likewise of a record in the first place, which goes away before it answers.
TEST_F(Mirrored, NumberOfARecordInTheFirstPlaceIsNotUsedAgain) {
  mirror_two();
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  ASSERT_FALSE(record().in_mirror);
  EXPECT_EQ(record().generation, Generation{2});
  shell_.feed(ActionFailed{shell_.open(ActionKind::kRecordGeneration).at(0)->id, id_, "",
                           "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  shell_.settle_kind("FindCheckpoint");
  ASSERT_TRUE(record().in_mirror);
  EXPECT_EQ(record().generation, Generation{3});
}

// The record of generation 2 is under way when a node is lost. Another search finds generation 1,
// and then that record, or the one of a second controller, is created. A new record with another
// number would be created too, beside it and not after it.
TEST_F(Mirrored, NumberInTheSamePlaceIsOrderedAgain) {
  mirror_two();
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  ASSERT_EQ(record().generation, Generation{2});
  shell_.feed(NodeLost{id_, "n1", shell_.node(id_, "n1").boot_id, "its holder exited"});
  while (searches().empty()) ASSERT_TRUE(shell_.settle_one_kind());
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().generation, Generation{2});
  EXPECT_EQ(record().parent, Generation{1});
  shell_.feed(GenerationTaken{shell_.open(ActionKind::kRecordGeneration).at(0)->id, id_, {2}});
  shell_.newest_record[id_] = 2;
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().generation, Generation{3});
  EXPECT_EQ(record().parent, Generation{2});
}

// Both orders are for the mirror.
TEST_F(Mirrored, NumberInTheMirrorIsOrderedAgain) {
  mirror_two();
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  shell_.settle_kind("FindCheckpoint");
  ASSERT_TRUE(record().in_mirror);
  shell_.feed(NodeLost{id_, "n1", shell_.node(id_, "n1").boot_id, "its holder exited"});
  while (searches().empty()) ASSERT_TRUE(shell_.settle_one_kind());
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  ASSERT_TRUE(search().in_mirror);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_TRUE(record().in_mirror);
  EXPECT_EQ(record().generation, Generation{2});
  shell_.restart();
  EXPECT_EQ(job().mirror.ordered.generation, Generation{2});
  EXPECT_TRUE(job().mirror.ordered.in_mirror);
}

// No worker told of a commit, and the directory may have a checkpoint all the same.
TEST_F(Mirrored, SeedDoesNotReplaceAFirstPlaceThatIsAway) {
  hold(0, 0);
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  ASSERT_TRUE(search().in_mirror);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_THAT(shell_.open(ActionKind::kRecordGeneration), IsEmpty());
  EXPECT_THAT(job().reason, HasSubstr("the mirror has no checkpoint"));
}

// The next recovery must know that the first place has step 20.
TEST_F(Mirrored, StartFromMemoryKeepsTheStepOfAFirstPlaceThatIsAway) {
  mirror_two();
  hold(20, 10);
  end_workers_with(25);
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  shell_.settle_kind("FindCheckpoint");
  ASSERT_TRUE(record().in_mirror);
  ASSERT_EQ(record().start_step, 25U);
  shell_.settle_kind("RecordGeneration");
  EXPECT_EQ(job().committed_step, 20U);
}

// A mirror without the newest record may hold checkpoints that a later generation has given up.
TEST_F(Mirrored, MirrorWithoutTheNewestRecordDoesNotReplaceTheFirstPlace) {
  mirror_two();
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  ASSERT_THAT(searches(), SizeIs(1));
  shell_.newest_record[id_] = 0;
  shell_.settle_kind("FindCheckpoint");
  EXPECT_THAT(shell_.open(ActionKind::kRecordGeneration), IsEmpty());
  EXPECT_THAT(job().reason, HasSubstr("lacks the record of generation 1"));
  EXPECT_FALSE(has_ended(job().state));
}

// A copy is made of what the first place has, perhaps before a worker tells of the commit.
TEST_F(Mirrored, StepThatOnlyTheMirrorToldOfIsLookedForThere) {
  hold(20, 20);
  commit(10);
  shell_.settle();
  ASSERT_EQ(job().mirror.step, 20U);
  ASSERT_EQ(job().committed_step, 10U);
  hold(10, 20);
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  ASSERT_THAT(searches(), SizeIs(1));
  EXPECT_TRUE(search().in_mirror);
}

TEST_F(Mirrored, FirstPlaceHasItsTimeHoweverOldTheJobIs) {
  mirror_two();
  shell_.pass(2 * kAfterMs);
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  EXPECT_THAT(searches(), IsEmpty());
  shell_.pass(kBackoffBaseMs);
  ASSERT_THAT(searches(), SizeIs(1));
  shell_.pass(kAfterMs - kBackoffBaseMs);
  ASSERT_THAT(searches(), SizeIs(1));
  EXPECT_FALSE(search().in_mirror);
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  ASSERT_THAT(searches(), SizeIs(1));
  EXPECT_TRUE(search().in_mirror) << "exactly checkpoint.mirror.after";
}

// Nothing of a job that has not begun can be in its mirror.
TEST_F(Mirrored, FirstGenerationWaitsForTheFirstPlace) {
  FakeShell shell;
  JobSpec spec = small_job("new");
  spec.checkpoint.mirror = {"/mirror", 0, kAfterMs};
  const JobId id = shell.submit(spec);
  shell.settle_kind("LaunchNode");
  for (int attempt = 0; attempt < 6; ++attempt) {
    const auto open = shell.open(ActionKind::kFindCheckpoint);
    ASSERT_THAT(open, SizeIs(1));
    EXPECT_FALSE(std::get<FindCheckpoint>(open[0]->body).in_mirror);
    shell.feed(ActionFailed{open[0]->id, id, "", "Input/output error"});
    shell.pass(30'000);
  }
}

// The first place may have what a mirror that never worked lacks.
TEST_F(Mirrored, MirrorThatNeverWorkedReplacesNoFirstPlace) {
  commit(20);
  shell_.feed(ActionFailed{orders().at(0)->id, id_, "", "Not a directory"});
  hold(20, 0);
  kill_worker();
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  ASSERT_TRUE(search().in_mirror);
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Not a directory"});
  EXPECT_THAT(shell_.open(ActionKind::kRecordGeneration), IsEmpty());
  EXPECT_FALSE(has_ended(job().state));
}

// While the first place is away, its search cannot settle a claim about a copy. The same copy was
// chosen again and again.
TEST_F(Mirrored, ClaimAboutACopyIsSettledWhileTheFirstPlaceIsAway) {
  mirror_two();
  hold(10, 20);
  kill_worker();
  shell_.settle();
  ASSERT_EQ(job().checkpoint, "/mirror/step-20.g1");
  shell_.exit_worker(id_, 2, kExitCheckpointDamaged, 0, 20, "a shard is gone");
  shell_.settle_kind("StopWorkers");
  ASSERT_EQ(search().claim.checkpoint, "/mirror/step-20.g1");
  shell_.feed(ActionFailed{searches().at(0)->id, id_, "", "Input/output error"});
  shell_.pass(30'000);
  away_for(2 * kAfterMs);
  ASSERT_TRUE(search().in_mirror);
  EXPECT_EQ(search().claim.checkpoint, "/mirror/step-20.g1");
  hold(10, 10);
  shell_.settle_kind("FindCheckpoint");
  EXPECT_THAT(job().damaged, ElementsAre("/mirror/step-20.g1"));
  EXPECT_EQ(job().claim.checkpoint, "");
}

TEST_F(Mirrored, LostCheckpointIsToldOnlyWhereTheMirrorLacksItToo) {
  mirror_two();
  shell_.lost_checkpoint = "step-20.g1";
  for (const uint64_t in_mirror : {20U, 0U}) {
    hold(10, in_mirror);
    kill_worker();
    shell_.settle_kind("FindCheckpoint");
    shell_.settle_kind("FindCheckpoint");
    EXPECT_EQ(record().start_step, in_mirror == 0 ? 10U : 20U);
    EXPECT_EQ(is_told("CheckpointGone"), in_mirror == 0);
    shell_.settle();
    shell_.progress(id_, 21);
  }
}

class NotMirrored : public Mirrored {
  void adjust(JobSpec& spec) override { spec.checkpoint.mirror = {}; }
};

TEST_F(NotMirrored, NothingIsOrderedOrAsked) {
  hold(20, 20);
  commit(20);
  EXPECT_THAT(orders(), IsEmpty());
  hold(10, 20);
  kill_worker();
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().checkpoint, "step-10.g1");
}

}  // namespace
}  // namespace hpctl::core
