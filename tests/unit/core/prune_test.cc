// SPDX-License-Identifier: Apache-2.0
// When the core orders the deletion of older checkpoints: only while a job trains, and never
// between FindCheckpoint and the first step of the generation that starts from what was found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

// A row of the release before.
TEST(PruneCodec, OlderRowHasNothingDue) {
  Job job;
  job.spec = small_job("demo");
  job.pruning = {true, true, 5, 6};
  std::string text = encode(job);
  const std::string field =
      R"("pruning":{"due":true,"for_room":true,"recorded_ms":5,"verified_wall_ms":6},)";
  ASSERT_THAT(text, HasSubstr(field));
  text.erase(text.find(field), field.size());
  const auto older = decode_job(text);
  ASSERT_TRUE(older.ok()) << older.error().message;
  EXPECT_FALSE(older->pruning.due);
  EXPECT_EQ(older->pruning.recorded_ms, 0);
}

}  // namespace
}  // namespace hpctl::core
