// SPDX-License-Identifier: Apache-2.0
// Whole workers that are told over their control socket to leave a generation and to join the next:
// the process stays, and the bits of the result are those of a job that nobody disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "common/base/lineage.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl {
namespace {

using control::Abort;
using control::Aborted;
using control::Finish;
using control::Join;
using control::Joined;
using control::Ready;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Job;
using testing::WorkerProcess;

// The next message, which must be a T.
template <typename T>
T expect(WorkerProcess& worker) {
  const std::optional<control::FromWorker> heard = worker.hear();
  if (!heard) {
    ADD_FAILURE() << "the worker ended: " << worker.message();
    return {};
  }
  EXPECT_TRUE(std::holds_alternative<T>(*heard)) << "kind " << heard->index();
  return std::holds_alternative<T>(*heard) ? std::get<T>(*heard) : T{};
}

// A job whose agents' part the test plays.
class SteeredJob : public Job {
 public:
  explicit SteeredJob(int world_size, int64_t steps) : Job(world_size) {
    workload.train.steps = steps;
    workload.train.data.seq_len = 16;
    workload.checkpoint.every_steps = 20;
  }

  void start_and_join() {
    record_generation();
    start();
    for (const auto& worker : workers) {
      expect<Ready>(*worker);
      EXPECT_EQ(expect<Joined>(*worker).generation, 1U);
    }
  }

  // One rank after the other: who was told does not disturb who was not. The newest step that is
  // sealed on every rank.
  uint64_t abort_after_step(uint64_t step) {
    EXPECT_TRUE(workers[0]->wait_for_step(step)) << messages();
    uint64_t common = UINT64_MAX;
    for (const auto& worker : workers) {
      worker->tell(Abort{workload.generation});
      const Aborted aborted = expect<Aborted>(*worker);
      EXPECT_EQ(aborted.generation, workload.generation);
      if (aborted.sealed_steps.empty()) return 0;
      common = std::min(common, aborted.sealed_steps.front());
    }
    return common;
  }

  // The next generation, in the same processes, from a step in their memory.
  void join_from(uint64_t step) {
    workload.parent_generation = workload.generation++;
    workload.start_step = step;
    workload.from_memory = true;
    record_generation();
    workload.rendezvous_dir = *this / ("rdzv-g" + std::to_string(workload.generation));
    for (int r = 0; r < workload.world_size; ++r) send_join(r, workload.generation);
    for (const auto& worker : workers) {
      EXPECT_EQ(expect<Joined>(*worker).generation, workload.generation);
    }
  }

  void send_join(int rank, uint64_t generation) {
    workload.rank = rank;
    const UniqueFd document = WorkerProcess::memory("workload", to_json_text(workload));
    workers[static_cast<size_t>(rank)]->tell(Join{generation}, document.get());
  }

 private:
  void record_generation() {
    GenerationRecord record;
    record.generation = workload.generation;
    record.parent = workload.parent_generation;
    record.start_step = workload.start_step;
    ASSERT_TRUE(create_generation(workload.checkpoint_dir, record).ok());
  }
};

TEST(WorkerControl, AfterAnAbortTheSameProcessGoesOnWithTheBitsOfAnUndisturbedJob) {
  SteeredJob calm(2, 100);
  ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  const std::string undisturbed = calm.digest("step-100.g1");
  ASSERT_EQ(undisturbed.size(), 64U) << undisturbed;

  SteeredJob job(2, 100);
  job.start_and_join();
  for (const uint64_t step : {3, 30}) {
    const uint64_t common = job.abort_after_step(step);
    ASSERT_GE(common + 1, step) << job.messages();
    ASSERT_LT(common, 100U) << "the abort came too late to disturb anything";
    job.join_from(common);
  }
  for (const auto& worker : job.workers) EXPECT_EQ(worker->wait(), kExitFinished);
  EXPECT_EQ(job.digest("step-100.g3"), undisturbed) << job.messages();
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-100.g3");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_TRUE(manifest->exact) << manifest->inexact_reason;
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message;
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty());
  EXPECT_EQ(ledger->cursor, 400U);
}

TEST(WorkerControl, FinishEndsTrainingAsSigtermDoes) {
  SteeredJob job(2, 1'000'000);
  job.workload.train.schedule.name = ScheduleShape::kConstant;
  job.workload.checkpoint.every_steps = 0;
  job.start_and_join();
  ASSERT_TRUE(job.workers[0]->wait_for_step(3)) << job.messages();
  job.workers[1]->tell(Finish{});
  for (const auto& worker : job.workers) EXPECT_EQ(worker->wait(), -SIGTERM);
  const auto saved = latest_valid_checkpoint(job.workload.checkpoint_dir, {});
  ASSERT_TRUE(saved.ok() && *saved);
  EXPECT_EQ((*saved)->step, job.workers[0]->page().step);
}

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

// The agent's word may be overtaken by the peers' end; and it may come when all is done.
TEST(WorkerControl, AnAbortOfAGenerationThatIsPastDisturbsNobody) {
  SteeredJob job(2, 30);
  job.start_and_join();
  job.join_from(job.abort_after_step(2));
  for (const auto& worker : job.workers) worker->tell(Abort{1});
  for (const auto& worker : job.workers) EXPECT_EQ(worker->wait(), kExitFinished) << job.messages();
}

}  // namespace
}  // namespace hpctl
