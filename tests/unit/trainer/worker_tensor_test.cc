// SPDX-License-Identifier: Apache-2.0
// Whole workers with tensor parallelism: they train as one rank does, go on from their checkpoints
// bit for bit, and from a checkpoint of any other mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/job/lineage.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/steered_job.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl {
namespace {

using ::testing::Each;
using testing::Job;
using testing::SteeredJob;

// On one node, as tensor parallelism needs it. A vocabulary of 259 is odd, so ranks have different
// parts of it.
void divide(Job& job, int64_t tensor) {
  job.workload.workers_per_node = job.workload.world_size;
  job.workload.train.degrees.tensor = tensor;
  job.workload.train.model.vocab = 259;
  job.workload.train.optimizer.clip = 0.5;
}

class TensorJob : public Job {
 public:
  TensorJob(int world_size, int64_t tensor) : Job(world_size) { divide(*this, tensor); }
};

double largest_difference(const std::string& a, const std::string& b) {
  const auto report = diff_checkpoints(a, b);
  EXPECT_TRUE(report.ok()) << report.error().message;
  if (!report.ok()) return HUGE_VAL;
  double largest = 0;
  for (const TensorDifference& difference : report->differences) {
    EXPECT_EQ(difference.what, "other values") << difference.name;
    largest = std::max(largest, difference.max_abs);
  }
  return largest;
}

TEST(WorkerTensor, TwentyStepsAreThoseOfOneRank) {
  const auto be_long = [](Job& job) {
    job.workload.train.steps = 20;
    job.workload.checkpoint.every_steps = 20;
  };
  TensorJob one(1, 1);
  be_long(one);
  ASSERT_THAT(one.run(), Each(kExitFinished)) << one.messages();
  const auto expected = one.metrics();
  ASSERT_EQ(expected.size(), 20U);
  for (const auto& [world_size, tensor] : {std::pair(2, 2), std::pair(4, 2), std::pair(4, 4)}) {
    TensorJob job(world_size, tensor);
    be_long(job);
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    const auto found = job.metrics();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t k = 0; k < found.size(); ++k) {
      const double loss = expected[k]["loss"];
      const double norm = expected[k]["grad_norm"];
      EXPECT_GT(norm, 0.5) << "clipped";
      EXPECT_NEAR(found[k]["loss"].get<double>(), loss, 2e-5 * loss) << tensor << " step " << k;
      EXPECT_NEAR(found[k]["grad_norm"].get<double>(), norm, 1e-3 * norm) << tensor << " " << k;
    }
    EXPECT_LE(largest_difference(one / "checkpoints/step-20.g1", job / "checkpoints/step-20.g1"),
              1e-4);
    GenerationRecord only;
    only.generation = 1;
    const auto proof = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir, {only});
    ASSERT_TRUE(proof.ok()) << proof.error().message;
    EXPECT_THAT(proof->problems, ::testing::IsEmpty()) << "each sample once, not on each rank";
  }
}

TEST(WorkerTensor, GoesOnBitForBit) {
  for (const auto& [world_size, tensor] : {std::pair(2, 2), std::pair(4, 2)}) {
    TensorJob calm(world_size, tensor);
    ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
    TensorJob job(world_size, tensor);
    job.resume_from(calm, "step-3.g1", 3);
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    EXPECT_EQ(job.digest("step-8.g2"), calm.digest("step-8.g1")) << broken_promise("digest");
    const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
    ASSERT_TRUE(manifest.ok());
    EXPECT_TRUE(manifest->exact) << manifest->inexact_reason;
  }
}

TEST(WorkerTensor, GoesOnOnAnyOtherMeshAndSaysThatItIsNotExact) {
  TensorJob calm(2, 2);
  ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  const double loss = calm.metrics().back()["loss"];
  for (const auto& [world_size, tensor] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(4, 2), std::pair(4, 4)}) {
    TensorJob job(world_size, tensor);
    job.resume_from(calm, "step-3.g1", 3);
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    EXPECT_NEAR(job.metrics().back()["loss"].get<double>(), loss, 1e-4);
    const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
    ASSERT_TRUE(manifest.ok());
    EXPECT_FALSE(manifest->exact) << world_size << " of " << tensor;
  }
}

// ---- from memory -------------------------------------------------------------------------------

// 100 steps of a job that nobody disturbed.
std::string undisturbed_digest(int world_size, Strategy strategy) {
  SteeredJob calm(world_size, 100);
  divide(calm, 2);
  calm.workload.train.strategy = strategy;
  calm.steered = false;
  EXPECT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  return calm.digest("step-100.g1");
}

void expect_undisturbed(SteeredJob& job, Strategy strategy) {
  for (const auto& worker : job.workers) ASSERT_EQ(worker->wait(), kExitFinished) << job.messages();
  const std::string name = "step-100.g" + std::to_string(job.workload.generation);
  EXPECT_EQ(job.digest(name), undisturbed_digest(job.workload.world_size, strategy))
      << broken_promise("digest");
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
  EXPECT_EQ(ledger->cursor, 400U) << broken_promise("ledger");
}

TEST(WorkerTensor, GoesOnFromMemoryBitForBit) {
  SteeredJob job(2, 100);
  divide(job, 2);
  job.start_and_join();
  ASSERT_NO_FATAL_FAILURE(job.go_on_over_aborts({20, 50}));
  expect_undisturbed(job, Strategy::kFull);
}

// Rank 2 has lost its memory. Rank 0 has the same part of each layer; rank 1, which is nearer, has
// another.
TEST(WorkerTensor, AReplicaOfTheSamePartRefillsARank) {
  SteeredJob job(4, 100);
  divide(job, 2);
  job.workload.train.strategy = Strategy::kNoShard;
  job.start_and_join();
  const uint64_t step = job.abort_after_step(20);
  job.replace(2);
  job.workload.refilled = {2};
  job.join_from(step);
  expect_undisturbed(job, Strategy::kNoShard);
}

// Two nodes of two ranks; the second is lost with its memory, and the first has copies of its
// parts. Then another node comes.
TEST(WorkerTensor, NodesGoOnFromMemoryWithFewerOfThemAndWithMore) {
  SteeredJob job(4, 100);
  divide(job, 2);
  job.workload.workers_per_node = 2;
  job.workload.snapshot.every_steps = 1;
  job.start_and_join();
  job.abort_after_step(10);
  const uint64_t first = job.refill_from_peers({2, 3});
  ASSERT_GT(first, 0U) << job.messages();
  job.workers.resize(2);
  job.workload.world_size = 2;
  job.workload.former_parts = 4;
  job.workload.refilled.clear();
  job.join_from(first);
  const uint64_t second = job.abort_after_step(first + 20);
  ASSERT_GE(second + 1, first + 20) << job.messages();
  job.add_ranks(2);
  job.workload.former_parts = 2;
  job.join_from(second);
  for (const auto& worker : job.workers) EXPECT_EQ(worker->wait(), kExitFinished) << job.messages();
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-100.g3");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_EQ(manifest->inexact_reason,
            "world size changed from 4 to 2 after step " + std::to_string(first));
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message << broken_promise("ledger");
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << broken_promise("ledger");
}

}  // namespace
}  // namespace hpctl
