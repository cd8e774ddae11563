// SPDX-License-Identifier: Apache-2.0
// Whole workers that lose a peer, are killed or told to end, and go on from a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/job/lineage.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl {
namespace {

using testing::calm_job;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Job;

constexpr uint64_t kComparedSteps = 60;  // beyond them other rounding adds up

// What a step does, does not depend on how many there are; endless, a job does not end before a
// signal arrives, however late that is.
constexpr int64_t kEndless = 1'000'000;
void be_long(Job& job, int64_t steps) {
  job.workload.train.steps = steps;
  job.workload.train.schedule.name = ScheduleShape::kConstant;
}

TEST(Worker, ResumesAtAnotherWorldSizeAndSaysThatItIsNotExact) {
  const double loss = calm_job().metrics().back()["loss"];
  Job job(4);
  job.resume_from(calm_job(), "step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_NEAR(job.metrics().back()["loss"].get<double>(), loss, 1e-4);
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
  ASSERT_TRUE(manifest.ok());
  EXPECT_FALSE(manifest->exact);
  EXPECT_EQ(manifest->inexact_reason, "world size changed from 2 to 4 after step 3");
}

TEST(Worker, ResumesWithOtherMicroBatchesAndSaysThatItIsNotExact) {
  Job job(2);
  job.resume_from(calm_job(), "step-3.g1", 3);
  job.workload.train.batch.micro = 2;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
  ASSERT_TRUE(manifest.ok());
  EXPECT_FALSE(manifest->exact);
  EXPECT_EQ(manifest->inexact_reason, "batch.micro changed from 1 to 2 after step 3");
}

// The first place has lost its last checkpoint. Without another save the job would be FINISHED, and
// its result in the mirror alone.
TEST(Worker, LastStepThatOnlyTheMirrorHasIsSavedAgain) {
  Job job(2);
  job.resume_from(calm_job(), "step-8.g1", 8);
  job.workload.checkpoint.mirror.dir = calm_job().workload.checkpoint_dir;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), calm_job().digest("step-8.g1")) << broken_promise("digest");
}

TEST(Worker, SurvivorOfAKilledPeerSaysSoAndExits) {
  Job job(3);
  job.workload.train.batch.global = 3;
  job.workload.train.steps = 1'000'000;
  job.workload.checkpoint.every_steps = 0;
  job.start();
  ASSERT_TRUE(job.workers[0]->wait_for_step(3)) << job.messages();
  job.workers[1]->send(SIGKILL);
  EXPECT_EQ(job.workers[1]->wait(), -SIGKILL);
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(job.workers[survivor]->wait(), kExitPeerLost);
    EXPECT_THAT(job.workers[survivor]->message(), HasSubstr("collective"));
  }
}

// Time limit, scancel, preemption: one rank's SIGTERM is enough.
TEST(Worker, SigtermEndsAllRanksWithACheckpointOfTheStepUnderWay) {
  Job stopped(2);
  be_long(stopped, kEndless);
  stopped.workload.checkpoint.every_steps = 0;
  stopped.start();
  ASSERT_TRUE(stopped.workers[0]->wait_for_step(3)) << stopped.messages();
  stopped.workers[1]->send(SIGTERM);
  stopped.workers[1]->send(SIGTERM);  // by Slurm and by the agent
  EXPECT_EQ(stopped.workers[0]->wait(), kExitPeerLost) << "it was not asked: no cause";
  EXPECT_THAT(stopped.workers[0]->message(), HasSubstr("another rank got SIGTERM"));
  EXPECT_EQ(stopped.workers[1]->wait(), -SIGTERM);
  const uint64_t reached = stopped.workers[0]->page().step;
  const auto saved = latest_valid_checkpoint(stopped.workload.checkpoint_dir, {});
  ASSERT_TRUE(saved.ok() && *saved) << broken_promise("checkpoint");
  EXPECT_EQ((*saved)->step, reached) << broken_promise("checkpoint");
  const uint64_t end = reached + 10;
  stopped.resume((*saved)->name(), reached);
  stopped.workload.train.steps = static_cast<int64_t>(end);
  ASSERT_THAT(stopped.run(), Each(kExitFinished)) << stopped.messages();
  Job calm(2);
  be_long(calm, static_cast<int64_t>(end));
  ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  const std::string last = "step-" + std::to_string(end);
  EXPECT_EQ(stopped.digest(last + ".g2"), calm.digest(last + ".g1")) << broken_promise("digest");
}

// A validation of some thirty seconds. The next start makes up for it.
TEST(Worker, SigtermEndsAValidationAndTheNextStartMakesUpForIt) {
  Job job(2);
  be_long(job, kEndless);
  ASSERT_TRUE(make_directories(job / "texts").ok());
  std::ofstream(job / "texts/0") << std::string(4'000, 'a');
  std::ofstream(job / "texts/1") << std::string(2'000'000, 'b');
  job.workload.train.data.path = job / "texts";
  job.workload.train.data.split = {1, 1, 0};
  job.workload.train.validation.every_steps = 3;
  job.workload.checkpoint.every_steps = 0;
  job.start();
  ASSERT_TRUE(job.workers[0]->wait_for_step(3)) << job.messages();
  job.workers[1]->send(SIGTERM);
  EXPECT_EQ(job.workers[0]->wait(), kExitPeerLost);
  EXPECT_EQ(job.workers[1]->wait(), -SIGTERM);
  EXPECT_EQ(job.workers[0]->page().step, 3U);
  ASSERT_EQ(job.resume_from_newest(), 3U) << job.messages();
  job.workload.train.steps = 4;
  job.workload.train.validation.sequences = 2;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  std::vector<uint64_t> evaluated;
  for (const auto& line : job.metrics()) {
    if (line.contains("validation_loss")) evaluated.push_back(line["step"]);
  }
  EXPECT_EQ(evaluated, (std::vector<uint64_t>{3, 4}));
}

// No step is complete, so nothing is saved: the step would take a minute.
TEST(Worker, SigtermEndsALongFirstStep) {
  Job job(2);
  be_long(job, kEndless);
  job.workload.train.batch.global = 40'000;
  job.start();
  for (const auto& worker : job.workers) {
    ASSERT_TRUE(worker->wait_until([&] { return worker->page().computing.load() != 0; }))
        << job.messages();
  }
  job.workers[1]->send(SIGTERM);
  EXPECT_EQ(job.workers[0]->wait(), kExitPeerLost);
  EXPECT_EQ(job.workers[1]->wait(), -SIGTERM);
  EXPECT_EQ(job.workers[0]->page().step, 0U);
  const auto saved = latest_valid_checkpoint(job.workload.checkpoint_dir, {});
  EXPECT_TRUE(saved.ok() && !*saved);
}

// Two workers that share everything out are killed; four in groups of two go on.
TEST(Worker, KilledThenGoesOnWithOtherRanksAndAnotherStrategy) {
  Job job(2);
  be_long(job, kEndless);
  job.workload.checkpoint.every_steps = 2;
  job.start();
  // A save is written beside the steps, of which a slow disk lets many pass.
  const auto saved = [&] { return latest_valid_checkpoint(job.workload.checkpoint_dir, {}); };
  ASSERT_TRUE(job.workers[0]->wait_until([&] { return saved().ok() && *saved(); }))
      << job.messages();
  for (const auto& worker : job.workers) worker->send(SIGKILL);
  for (const auto& worker : job.workers) worker->wait();
  const auto latest = saved();
  ASSERT_TRUE(latest.ok() && *latest) << broken_promise("checkpoint");
  const uint64_t step = (*latest)->step;
  const uint64_t end = job.workers[0]->page().step + 10;
  // What the controller does before it starts a generation.
  GenerationRecord record;
  record.generation = 1;
  ASSERT_TRUE(create_generation(job.workload.checkpoint_dir, record).ok());
  record.generation = 2;
  record.parent = 1;
  record.start_step = step;
  record.checkpoint = (*latest)->name();
  ASSERT_TRUE(create_generation(job.workload.checkpoint_dir, record).ok());
  job.resume((*latest)->name(), step);
  job.workload.train.steps = static_cast<int64_t>(end);
  job.workload.world_size = 4;
  job.workload.train.strategy = Strategy::kHybrid;
  job.workload.train.shard_group = 2;
  job.workload.train.memory.activation_checkpointing = Checkpointing::kFull;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  // Each of the four wrote its own quarter.
  const auto manifest =
      read_manifest(job.workload.checkpoint_dir + "/step-" + std::to_string(end) + ".g2");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  ASSERT_EQ(manifest->files.size(), 4U);
  EXPECT_LT(manifest->files[0].bytes, 1.1 * static_cast<double>(manifest->files[3].bytes));
  EXPECT_FALSE(manifest->exact);
  Job calm(2);
  be_long(calm, static_cast<int64_t>(std::min(end, kComparedSteps)));
  ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  const auto expected = calm.metrics();
  for (const auto& line : job.metrics()) {
    const auto at = line["step"].get<uint64_t>();
    if (at > expected.size()) continue;
    const double loss = expected.at(at - 1)["loss"];
    EXPECT_NEAR(line["loss"].get<double>(), loss, 1e-3 * loss) << line;
  }
  EXPECT_EQ(job.metrics().back()["step"], end);
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  EXPECT_EQ(ledger->cursor, 4 * end) << broken_promise("ledger");
}

}  // namespace
}  // namespace hpctl
