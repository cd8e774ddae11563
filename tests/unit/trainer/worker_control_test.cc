// SPDX-License-Identifier: Apache-2.0
// Whole workers leave one generation and join the next without a new process: by an order over the
// control socket, or because a peer is gone and a standby replaces it. The result has the same bits
// as without any fault.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/job/bad_step.h"
#include "common/worker/arena_header.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/slow_engine.h"
#include "tests/unit/trainer/steered_job.h"

namespace hpctl {
namespace {

using control::Abort;
using control::Aborted;
using control::Finish;
using control::Join;
using control::Joined;
using control::PeerLost;
using control::Ping;
using control::Pong;
using control::Ready;
using control::Suffer;
using control::Take;
using ::testing::Contains;
using ::testing::Each;
using testing::expect;
using testing::hand_over_arena;
using ::testing::HasSubstr;
using testing::nice_value;
using testing::nice_values;
using testing::SlowEngine;
using testing::SteeredJob;
using testing::WorkerProcess;

TEST(WorkerControl, AfterAnAbortTheSameProcessGoesOnWithTheBitsOfAnUndisturbedJob) {
  SteeredJob job(2, 100);
  job.start_and_join();
  ASSERT_NO_FATAL_FAILURE(job.go_on_over_aborts({3}));
  // The abort of a past generation disturbs nobody: the agent may send it late.
  for (const auto& worker : job.workers) worker->tell_if_there(Abort{1});
  ASSERT_NO_FATAL_FAILURE(job.go_on_over_aborts({30}));
  job.expect_ends_as_calm();
}

// Each has all of the state. A rank that is new gets it from the others.
TEST(WorkerControl, ReplicasGoOnFromMemoryWithFewerRanksAndWithMore) {
  SteeredJob job(3, 100);
  job.workload.train.strategy = Strategy::kNoShard;
  job.start_and_join();
  job.abort_after_step(10);
  job.workers.pop_back();
  job.workload.world_size = 2;
  const uint64_t first = job.refill_from_newest();
  job.join_from(first);
  job.abort_after_step(first + 20);
  const uint64_t second = job.refill_from_newest();
  job.add_third();
  job.workload.refilled.push_back(2);
  job.join_from(second);
  for (const auto& worker : job.workers) ASSERT_EQ(worker->wait(), kExitFinished) << job.messages();
  EXPECT_EQ(job.metrics().size(), job.losses().size()) << "a step was done twice";
  EXPECT_GE(job.losses().size(), 98U) << "rank 0 may have left before it told a step";
  job.expect_shrunk_and_exact(first);
}

// Each rank has a part of its own. One is lost with its memory, whose part its peer keeps; then
// another rank comes.
TEST(WorkerControl, RanksWithPartsOfTheirOwnGoOnFromMemoryWithFewerOfThemAndWithMore) {
  SteeredJob job(3, 100);
  job.workload.snapshot.every_steps = 1;
  job.start_and_join();
  job.abort_after_step(10);
  const uint64_t first = job.refill_from_peer(2);
  ASSERT_GT(first, 0U) << job.messages();
  job.workers.pop_back();
  job.workload.world_size = 2;
  job.workload.former_parts = 3;
  job.workload.refilled.clear();
  job.join_from(first);
  const uint64_t second = job.abort_after_step(first + 20);
  // Rank 0 may have told a step that its peer was still sealing.
  ASSERT_GE(second + 1, first + 20) << job.messages();
  job.add_third();
  job.workload.former_parts = 2;
  job.join_from(second);
  for (const auto& worker : job.workers) EXPECT_EQ(worker->wait(), kExitFinished) << job.messages();
  job.expect_shrunk_and_exact(first);
}

// A part that nobody has: the ranks say so, and what they have stays for who finds the rest.
TEST(WorkerControl, RanksThatDoNotHaveAllPartsSayThatACheckpointIsNeeded) {
  SteeredJob job(3, 100);
  job.workload.snapshot.replicas = 0;  // or a peer may have a copy of just that step
  job.start_and_join();
  const uint64_t step = job.abort_after_step(10);
  job.workers.pop_back();
  job.workload.world_size = 2;
  job.workload.former_parts = 3;
  job.begin_from(step);
  for (int rank = 0; rank < 2; ++rank) job.send_join(rank, job.workload.generation);
  for (const auto& worker : job.workers) {
    EXPECT_EQ(worker->wait(), kExitCheckpointDamaged);
    EXPECT_NE(worker->message().find("start from a checkpoint"), std::string::npos)
        << worker->message();
    EXPECT_EQ(read_seals(worker->arena_fd()).parts, 3);
    EXPECT_EQ(read_seals(worker->arena_fd()).own.front().step, step);
  }
}

// Each rank has a part of its own, in pairs and in a ring of three. One after the other is lost
// with its memory.
TEST(WorkerControl, ARankThatIsLostWithItsMemoryGoesOnFromTheCopyAtItsPeer) {
  for (const int ranks : {2, 3}) {
    SteeredJob job(ranks, 100);
    job.workload.snapshot.every_steps = 1;
    job.start_and_join();
    uint64_t from = 0;  // the step that a generation starts from
    for (int lost = 0; lost < ranks; ++lost) {
      const uint64_t common = job.abort_after_step(from + (from == 0 ? 10 : 20));
      const uint64_t told = job.workers[0]->page().snapshot_step;
      auto& worker = job.workers[static_cast<size_t>(lost)];
      worker = std::make_unique<WorkerProcess>("");
      hand_over_arena(*worker, worker->arena_fd());
      const uint64_t copied = job.refill_from_peer(lost);
      ASSERT_GT(copied, 0U) << job.messages();
      // How far copies lag behind the steps depends on the load of the machine.
      EXPECT_GT(copied, from) << "no copy was made in this generation";
      EXPECT_LE(copied, common);
      EXPECT_GT(told, 0U);
      EXPECT_LE(told, copied) << "no such copy was there";
      job.join_from(copied);
      from = copied;
    }
    job.expect_ends_as_calm();
  }
}

bool dies_after_step_sixty() {
  return setenv("HPCTL_FAILPOINT", "trainer.step.applied:60", 1) == 0;
}

// In one of the first saves, between two of its ranges.
bool dies_in_a_save() {
  return setenv("HPCTL_FAILPOINT", "checkpoint.shard.range_written:30", 1) == 0;
}

// Two ranks, of which the second dies; a standby has its place, and has not joined yet.
class StandbySteppedIn : public ::testing::Test {
 protected:
  void SetUp() override {
    step_in_where(dies_after_step_sixty);
    EXPECT_GE(last_step_, 59U);
  }

  void step_in_where(bool (*dies)()) {
    job_.prepared_rank = 1;
    job_.in_child = dies;
    auto standby = std::make_unique<WorkerProcess>("");
    job_.start_and_join();
    EXPECT_EQ(job_.workers[1]->wait(), -SIGKILL);
    WorkerProcess& survivor = *job_.workers[0];
    EXPECT_EQ(expect<PeerLost>(survivor).generation, 1U);
    EXPECT_THAT(survivor.message(), HasSubstr("collective"));
    last_step_ = survivor.page().step;
    survivor.tell(Abort{1});
    expect<Aborted>(survivor);
    common_ = job_.newest_sealed_everywhere();
    std::swap(job_.workers[1], standby);
    dead_ = std::move(standby);
    hand_over_arena(*job_.workers[1], dead_->arena_fd());
  }

  SteeredJob job_{2, 100};
  std::unique_ptr<WorkerProcess> dead_;  // its arena is the standby's
  uint64_t last_step_ = 0;               // that the survivor completed
  uint64_t common_ = 0;
};

TEST_F(StandbySteppedIn, AndLoadsACheckpoint) {
  job_.join_from_disk();
  job_.expect_ends_as_calm();
  EXPECT_EQ(read_seals(dead_->arena_fd()).own.front().generation, 2U);
  const WorkerProcess& survivor = *job_.workers[0];
  EXPECT_EQ(survivor.page(0).step, last_step_) << "a generation has a page of its own";
  EXPECT_EQ(survivor.page(1).step, 100U);
  EXPECT_EQ(survivor.message(), "");
}

TEST_F(StandbySteppedIn, AndGoesOnFromTheMemoryOfTheDead) {
  ASSERT_EQ(common_, last_step_) << "no completed step is lost";
  job_.join_from(common_);
  job_.expect_ends_as_calm();
  for (const auto& line : job_.metrics()) {
    EXPECT_EQ(line["generation"] == 2, line["step"] > last_step_) << line;
  }
}

// It dies while a save reads the state that is sent to its peer as well.
class StandbyOfARankThatSaves : public StandbySteppedIn {
 protected:
  void SetUp() override {
    job_.workload.snapshot.every_steps = 1;
    step_in_where(dies_in_a_save);
  }
};

TEST_F(StandbyOfARankThatSaves, GoesOnFromTheMemoryOfTheDeadWithWhatItHeld) {
  const auto every = static_cast<uint64_t>(job_.workload.checkpoint.every_steps);
  const std::vector<Seal> own = read_seals(dead_->arena_fd()).own;
  EXPECT_TRUE(std::any_of(own.begin(), own.end(), [&](const Seal& seal) {
    return seal.step % every == 0;
  })) << "the state that was being saved is whole";
  ASSERT_GT(common_, 0U);
  EXPECT_LE(last_step_, common_ + 1) << "but for a step that only the survivor had sealed";
  job_.join_from(common_);
  job_.expect_ends_as_calm();
}

// As a rank whose node has forgotten what it held.
TEST_F(StandbySteppedIn, AndSaysSoWhenThatMemoryWillNotDo) {
  job_.workers[1]->tell(Take{kArenaFd}, WorkerProcess::memory("arena", "").get());
  job_.begin_from(common_);
  for (const int rank : {0, 1}) job_.send_join(rank, 2);
  EXPECT_EQ(job_.workers[1]->wait(), kExitCheckpointDamaged);
  EXPECT_THAT(job_.workers[1]->message(), HasSubstr("start from a checkpoint"));
}

TEST(WorkerControl, AWorkerMayJoinAsAnotherRankAndAfterAGenerationThatDidNotComeAbout) {
  SteeredJob job(2, 100);
  job.start_and_join();
  job.abort_after_step(30);
  job.go_back_to_disk();
  job.send_join(0, 2);  // and nobody else
  WorkerProcess& alone = *job.workers[0];
  ASSERT_TRUE(alone.wait_until(
      [&] { return alone.page().phase == static_cast<uint32_t>(WorkerPhase::kRendezvous); }));
  alone.tell(Abort{2});
  EXPECT_EQ(expect<Aborted>(alone).generation, 2U);
  std::swap(job.workers[0], job.workers[1]);
  job.join_from_disk();
  job.expect_ends_as_calm();
}

// A rank that is killed may not have come to write its line. What the others go on from was sealed
// by the generation before the last, which nobody started.
TEST(WorkerControl, AMissingLineOfTheLedgerIsMadeUpForAlsoAfterAGenerationThatDidNotComeAbout) {
  SteeredJob job(2, 100);
  job.start_and_join();
  const uint64_t step = job.abort_after_step(10);
  job.lose_lines_from(1, step);
  job.begin_from(step);
  job.join_from(step);
  job.expect_ends_as_calm();
}

// By whoever has lost interest, as before there was somebody to wait for.
TEST(WorkerControl, AWorkerThatLostAPeerEndsWhenNobodySaysWhatFollows) {
  SteeredJob job(4, 1'000'000);
  job.start_and_join();
  ASSERT_TRUE(job.workers[0]->wait_for_step(2)) << job.messages();
  job.workers[3]->send(SIGKILL);
  for (const int survivor : {0, 1, 2}) expect<PeerLost>(*job.workers[survivor]);
  job.workers[0]->close_control();
  EXPECT_EQ(job.workers[0]->wait(), kExitPeerLost);
  job.workers[1]->tell(Finish{});
  EXPECT_EQ(job.workers[1]->wait(), kExitPeerLost);
  job.workers[2]->send(SIGTERM);
  EXPECT_EQ(job.workers[2]->wait(), -SIGTERM);
  for (const int survivor : {0, 1, 2}) {
    EXPECT_THAT(job.workers[survivor]->message(), HasSubstr("collective"));
  }
}

bool has_four_blas_threads() { return setenv("OPENBLAS_NUM_THREADS", "4", 1) == 0; }

// The engine starts threads of its own while it is loaded, with the lowest priority.
TEST(WorkerControl, AStandbyEndsWhenItIsToldToOrLeftAlone) {
  std::array<WorkerProcess, 3> standbys = {
      WorkerProcess("", WorkerProcess::memory("arena", ""), has_four_blas_threads),
      WorkerProcess(""), WorkerProcess("")};
  for (WorkerProcess& standby : standbys) expect<Ready>(standby);
  EXPECT_THAT(nice_values(standbys[0].pid()), Each(nice_value(::getpid())));
  standbys[0].tell(Ping{9});
  EXPECT_EQ(expect<Pong>(standbys[0]).number, 9U);
  standbys[0].tell(Finish{});
  standbys[1].send(SIGTERM);
  standbys[2].close_control();
  for (WorkerProcess& standby : standbys) EXPECT_EQ(standby.wait(), -SIGTERM) << standby.message();
}

// A fault may come soon after the first step, and other programs may have the processors: what
// loads with the lowest priority hardly goes on then. Here its engine has no end.
TEST(WorkerControl, AStandbyThatStillLoadsTakesItsPartAtTheOrdinaryPriority) {
  SteeredJob job(1, 100);
  job.start_and_join();
  job.abort_after_step(3);
  SlowEngine engine;
  job.workers[0] = engine.start_standby();
  WorkerProcess& standby = *job.workers[0];
  ASSERT_TRUE(standby.wait_until([&] { return engine.is_being_loaded(); }));
  EXPECT_THAT(nice_values(standby.pid()), Contains("19"));
  engine.put_the_real_one();
  standby.tell(Take{kArenaFd}, standby.arena_fd());
  job.go_back_to_disk();
  job.send_join(0, job.workload.generation);
  expect<Ready>(standby);
  EXPECT_EQ(expect<Joined>(standby).generation, 2U);
  EXPECT_THAT(nice_values(standby.pid()), Each(nice_value(::getpid())));
  job.expect_ends_as_calm();
}

TEST(WorkerControl, FinishEndsTrainingAsSigtermDoes) {
  SteeredJob job(2, 1'000'000);
  job.workload.train.schedule.name = ScheduleShape::kConstant;
  job.workload.checkpoint.every_steps = 0;
  job.start_and_join();
  ASSERT_TRUE(job.workers[0]->wait_for_step(3)) << job.messages();
  job.workers[1]->tell(Finish{});
  EXPECT_EQ(job.workers[0]->wait(), kExitPeerLost);
  EXPECT_EQ(job.workers[1]->wait(), -SIGTERM);
  const auto saved = latest_valid_checkpoint(job.workload.checkpoint_dir, {});
  ASSERT_TRUE(saved.ok() && *saved) << broken_promise("checkpoint");
  EXPECT_EQ((*saved)->step, job.workers[0]->page().step) << broken_promise("checkpoint");
}

// What only memory has is saved before the end, also by ranks that nobody told.
TEST(WorkerControl, FinishDuringAStartFromMemorySavesIt) {
  SteeredJob job(2, 1'000'000);
  job.workload.train.schedule.name = ScheduleShape::kConstant;
  job.workload.checkpoint.every_steps = 0;
  job.start_and_join();
  const uint64_t sealed = job.abort_after_step(3);
  job.begin_from(sealed);
  for (const int rank : {0, 1}) job.send_join(rank, 2);
  job.workers[1]->tell(Finish{});
  EXPECT_EQ(job.workers[0]->wait(), kExitPeerLost) << job.messages();
  EXPECT_EQ(job.workers[1]->wait(), -SIGTERM) << job.messages();
  const auto saved = latest_valid_checkpoint(job.workload.checkpoint_dir, {});
  ASSERT_TRUE(saved.ok() && *saved) << broken_promise("checkpoint");
  EXPECT_EQ((*saved)->step, sealed) << broken_promise("checkpoint");
}

// The data are gone, which may be why the job fails. New processes learn from the sealed state what
// they were. A checkpoint that names other data is of no use once these are restored.
void expect_saved_without_data(const std::vector<int>& new_ranks) {
  SteeredJob job(2, 1'000'000);
  job.workload.train.schedule.name = ScheduleShape::kConstant;
  job.workload.checkpoint.every_steps = 2;
  job.start_and_join();
  const auto newest = [&] { return latest_valid_checkpoint(job.workload.checkpoint_dir, {}); };
  ASSERT_TRUE(job.workers[0]->wait_until([&] {
    const auto found = newest();
    return found.ok() && found->has_value();
  })) << job.messages();
  const auto before = newest();
  const uint64_t sealed = job.abort_after_step(5);
  const auto data_in = [&](const CheckpointRef& checkpoint) {
    return read_manifest(job.workload.checkpoint_dir + "/" + checkpoint.name()).value().data;
  };
  ASSERT_EQ(::unlink(job.workload.train.data.path.c_str()), 0);
  job.begin_from(sealed);
  job.workload.is_last = true;
  for (const int rank : {0, 1}) {
    if (std::find(new_ranks.begin(), new_ranks.end(), rank) == new_ranks.end()) {
      job.send_join(rank, 2);
      continue;
    }
    auto& worker = job.workers[static_cast<size_t>(rank)];
    UniqueFd arena(::fcntl(worker->arena_fd(), F_DUPFD_CLOEXEC, 0));
    worker->send(SIGKILL);
    worker->wait();
    job.workload.rank = rank;
    worker = std::make_unique<WorkerProcess>(job.workload, std::move(arena));
  }
  for (const auto& worker : job.workers) EXPECT_EQ(worker->wait(), -SIGTERM) << job.messages();
  const auto saved = newest();
  ASSERT_TRUE(saved.ok() && *saved) << broken_promise("checkpoint");
  EXPECT_EQ((*saved)->step, sealed) << broken_promise("checkpoint");
  EXPECT_EQ(data_in(**saved), data_in(**before));
}

TEST(WorkerControl, LastGenerationSavesWhatMemoryHasWithoutTheData) {
  expect_saved_without_data({1});
}

TEST(WorkerControl, LastGenerationOfNewProcessesNamesTheData) { expect_saved_without_data({0, 1}); }

// Nobody waits for ever: each of these ends a worker that waits for the next generation.
TEST(WorkerControl, BetweenTwoGenerationsAWorkerEndsWhenItIsToldToOrLeftAlone) {
  const auto finish = [](WorkerProcess& worker) { worker.tell(Finish{}); };
  const auto terminate = [](WorkerProcess& worker) { worker.send(SIGTERM); };
  const auto leave = [](WorkerProcess& worker) { worker.close_control(); };
  for (const std::function<void(WorkerProcess&)>& end :
       std::vector<std::function<void(WorkerProcess&)>>{finish, terminate, leave}) {
    SteeredJob job(1, 1'000'000);
    job.start_and_join();
    job.abort_after_step(2);
    end(*job.workers[0]);
    EXPECT_EQ(job.workers[0]->wait(), -SIGTERM) << job.messages();
  }
}

TEST(WorkerControl, AnOrderThatCannotBeFollowedIsRefusedInOneLine) {
  SteeredJob job(1, 1'000'000);
  job.start_and_join();
  job.abort_after_step(2);
  job.send_join(0, 7);
  EXPECT_EQ(job.workers[0]->wait(), kExitDoNotRestart);
  EXPECT_EQ(job.workers[0]->message(),
            "an order to join generation 7 came with the workload of generation 1");
  SteeredJob other(1, 1'000'000);
  other.start_and_join();
  other.abort_after_step(2);
  other.workers[0]->tell(Join{2});
  EXPECT_EQ(other.workers[0]->wait(), kExitDoNotRestart);
  EXPECT_THAT(other.workers[0]->message(), HasSubstr("came without its workload"));
}

TEST(WorkerControl, WithoutAnybodyAtTheOtherEndTrainingGoesOn) {
  SteeredJob job(1, 8);
  job.start();
  job.workers[0]->close_control();
  EXPECT_EQ(job.workers[0]->wait(), kExitFinished) << job.messages();
}

TEST(WorkerControl, ADescriptorThatNobodyHandsOverIsNotTaken) {
  SteeredJob job(1, 8);
  job.start();
  job.workers[0]->tell(Take{kWorkloadFd}, job.workers[0]->arena_fd());
  job.workers[0]->tell(Finish{});  // is not heard any more
  EXPECT_EQ(job.workers[0]->wait(), kExitFinished) << job.messages();
}

TEST(WorkerControl, AnExitOnPurposeIsThatOfAFailedStep) {
  SteeredJob job(2, 1'000'000);
  job.start_and_join();
  for (const char* fault : {"kill-worker", "no-such-fault"}) job.workers[1]->tell(Suffer{1, fault});
  job.workers[1]->tell(Suffer{7, "exit-worker"});  // of another generation
  ASSERT_TRUE(job.workers[0]->wait_for_step(5)) << job.messages();
  job.workers[1]->tell(Suffer{1, "exit-worker"});
  EXPECT_EQ(job.workers[1]->wait(), 1);
  EXPECT_EQ(job.workers[1]->message(), "a fault on purpose: this rank fails inside a step");
  expect<PeerLost>(*job.workers[0]);
}

std::string g_wrong_loss;  // the fail-point of an undisturbed job
bool loss_is_wrong() { return setenv("HPCTL_FAILPOINT", g_wrong_loss.c_str(), 1) == 0; }

// The bits are those of a job that leaves the same step out for another reason.
TEST(WorkerControl, NanGradientsOnPurposeMakeOneStepUnfitAndNothingElse) {
  const auto skips = [](SteeredJob& job) {
    job.workload.train.stability.policy = BadStepPolicy::kSkip;
  };
  SteeredJob job(2, 100);
  skips(job);
  job.start_and_join();
  const uint64_t common = job.abort_after_step(3);
  job.begin_from(common);
  job.workers[1]->tell(Suffer{2, "nan-gradient"});
  for (const int rank : {0, 1}) job.send_join(rank, 2);
  for (const auto& worker : job.workers) ASSERT_EQ(worker->wait(), kExitFinished) << job.messages();
  const ProgressPage& page = job.workers[0]->page();
  ASSERT_EQ(page.bad_steps.load(), 1U);
  const BadStepSlot& slot = page.bad_step[0];
  EXPECT_EQ(slot.step.load(), common + 1);
  EXPECT_EQ(slot.outcome.load(), static_cast<uint32_t>(BadStepOutcome::kSkipped));
  EXPECT_THAT(std::string(slot.reason, slot.reason_length.load()), HasSubstr("gradient norm"));

  SteeredJob calm(2, 100);
  skips(calm);
  g_wrong_loss = "trainer.loss:" + std::to_string(common + 1);
  calm.in_child = loss_is_wrong;
  EXPECT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  const std::string undisturbed = calm.digest("step-100.g1");
  ASSERT_EQ(undisturbed.size(), 64U) << undisturbed;
  EXPECT_EQ(job.digest("step-100.g2"), undisturbed) << broken_promise("digest");
}

}  // namespace
}  // namespace hpctl
