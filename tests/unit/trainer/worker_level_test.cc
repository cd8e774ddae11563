// SPDX-License-Identifier: Apache-2.0
// Whole workers whose instruction set is limited (ONEDNN_MAX_CPU_ISA): they compute at that level,
// and a job that goes on at another one says that it is not bit-exact, also where it is another one
// on some ranks alone. That faults leave the bits of the lowest level alone, worker_fault_test.cc
// tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "tests/support/promise.h"
#include "tests/support/scoped_variable.h"
#include "tests/unit/trainer/steered_job.h"
#include "trainer/kernels/level.h"

namespace hpctl {
namespace {

using testing::calm_job;
using ::testing::Each;
using testing::hand_over_arena;
using testing::Job;
using testing::ScopedVariable;
using testing::SteeredJob;
using testing::WorkerProcess;

constexpr const char* kVariable = "ONEDNN_MAX_CPU_ISA";

// Of a job that has run.
Manifest manifest_of(const Job& job, const std::string& checkpoint) {
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/" + checkpoint);
  EXPECT_TRUE(manifest.ok()) << manifest.error().message;
  return manifest.ok() ? *manifest : Manifest{};
}

// The label of the best level, and of the baseline, which is what SSE41 leaves.
std::string best() { return kernels_label(); }
std::string lowest() { return "baseline" + best().substr(best().find(' ')); }

bool limits_itself() { return setenv(kVariable, "SSE41", 1) == 0; }

// Rank `rank` alone is limited.
void limit(Job& job, int rank) {
  job.prepared_rank = rank;
  job.in_child = limits_itself;
}

class WorkerLevel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (best() == lowest()) {
      GTEST_SKIP() << "this processor, or " << kVariable << ", has one level";
    }
  }
};

TEST_F(WorkerLevel, GoingOnAtAnotherOneIsNotExactAndSaysSo) {
  const Job& calm = calm_job();
  EXPECT_EQ(manifest_of(calm, "step-3.g1").environment["kernels"], best());
  Job job(2);
  {
    const ScopedVariable limit(kVariable, "SSE41");
    job.resume_from(calm, "step-3.g1", 3);
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  }
  Manifest low = manifest_of(job, "step-8.g2");
  EXPECT_EQ(low.environment["kernels"], lowest());
  EXPECT_EQ(low.environment["onednn_max_cpu_isa"], "SSE41");
  EXPECT_FALSE(low.exact);
  EXPECT_EQ(low.inexact_reason,
            "kernels changed from " + best() + " to " + lowest() + " after step 3");
  EXPECT_NE(job.digest("step-8.g2"), calm.digest("step-8.g1"))
      << "the limit has not reached the kernels: levels add in other orders";
  const double loss = calm.metrics().back()["loss"];
  EXPECT_NEAR(job.metrics().back()["loss"].get<double>(), loss, 1e-3 * loss);
}

// Rank 0, which writes the manifest, sees no difference in itself.
TEST_F(WorkerLevel, GoingOnAtAnotherOneOnOneRankIsNotExactAndSaysWhich) {
  Job job(2);
  limit(job, 1);
  job.resume_from(calm_job(), "step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const Manifest last = manifest_of(job, "step-8.g2");
  EXPECT_FALSE(last.exact);
  EXPECT_EQ(last.inexact_reason, "kernels changed from " + best() + " to " + best() +
                                     " on rank 0; " + lowest() + " on rank 1 after step 3");
}

TEST_F(WorkerLevel, UnlikeRanksAreExactWhileEachStaysAtItsOwn) {
  const Job mixed(2, [](Job& job) { limit(job, 1); });
  const Manifest first = manifest_of(mixed, "step-8.g1");
  EXPECT_TRUE(first.exact) << first.inexact_reason;
  const std::string unlike = best() + " on rank 0; " + lowest() + " on rank 1";
  EXPECT_EQ(first.environment.at("kernels"), unlike);
  EXPECT_EQ(first.environment.at("onednn_max_cpu_isa"), "default on rank 0; SSE41 on rank 1");

  Job same(2);
  limit(same, 1);
  same.resume_from(mixed, "step-3.g1", 3);
  ASSERT_THAT(same.run(), Each(kExitFinished)) << same.messages();
  const Manifest again = manifest_of(same, "step-8.g2");
  EXPECT_TRUE(again.exact) << again.inexact_reason;
  EXPECT_EQ(same.digest("step-8.g2"), mixed.digest("step-8.g1")) << broken_promise("digest");

  Job elsewhere(2);
  limit(elsewhere, 0);
  elsewhere.resume_from(mixed, "step-3.g1", 3);
  ASSERT_THAT(elsewhere.run(), Each(kExitFinished)) << elsewhere.messages();
  const Manifest moved = manifest_of(elsewhere, "step-8.g2");
  EXPECT_FALSE(moved.exact);
  EXPECT_EQ(moved.inexact_reason, "kernels changed from " + unlike + " to " + lowest() +
                                      " on rank 0; " + best() + " on rank 1 after step 3");
  EXPECT_NE(elsewhere.digest("step-8.g2"), mixed.digest("step-8.g1"));
}

// From memory: the same processes first, then one that is lost with what it held, in whose place
// another kind of processor gets the copy at its peer.
TEST_F(WorkerLevel, ASpareOfAnotherOneIsNotExactAndSaysWhich) {
  SteeredJob job(2, 100);
  job.workload.snapshot.every_steps = 1;
  job.start_and_join();
  const uint64_t common = job.abort_after_step(10);
  job.join_from(common);
  job.abort_after_step(common + 20);
  job.workers[1] =
      std::make_unique<WorkerProcess>("", WorkerProcess::memory("arena", ""), limits_itself);
  hand_over_arena(*job.workers[1], job.workers[1]->arena_fd());
  const uint64_t copied = job.refill_from_peer(1);
  ASSERT_GT(copied, 0U) << job.messages();
  job.join_from(copied);
  for (const auto& worker : job.workers) EXPECT_EQ(worker->wait(), kExitFinished) << job.messages();
  const Manifest last = manifest_of(job, "step-100.g3");
  EXPECT_FALSE(last.exact);
  EXPECT_EQ(last.inexact_reason, "kernels changed from " + best() + " to " + best() +
                                     " on rank 0; " + lowest() + " on rank 1 after step " +
                                     std::to_string(copied));
}

// Bits are those of a number of threads; ours are the same with any (attention_test.cc,
// matmul_test.cc), LibTorch's and OpenBLAS's need not be.
TEST(WorkerThreads, ThatAreAskedForAreUsedAndRecorded) {
  const Job& calm = calm_job();
  EXPECT_EQ(manifest_of(calm, "step-8.g1").environment["aten_threads"], "1");
  const ScopedVariable threads("OMP_NUM_THREADS", "2");
  const ScopedVariable blas_threads("OPENBLAS_NUM_THREADS", "2");
  const Job twice(2, [](Job&) {});
  Manifest manifest = manifest_of(twice, "step-8.g1");
  EXPECT_EQ(manifest.environment["aten_threads"], "2");
  EXPECT_TRUE(manifest.exact);
  const Job again(2, [](Job&) {});
  EXPECT_EQ(again.digest("step-8.g1"), twice.digest("step-8.g1")) << broken_promise("digest");
  Job changed(2);
  changed.resume_from(calm, "step-3.g1", 3);
  ASSERT_THAT(changed.run(), Each(kExitFinished)) << changed.messages();
  manifest = manifest_of(changed, "step-8.g2");
  EXPECT_FALSE(manifest.exact);
  EXPECT_THAT(manifest.inexact_reason,
              ::testing::HasSubstr("aten_threads changed from 1 to 2 after step 3"));
  const double loss = calm.metrics().back()["loss"];
  EXPECT_NEAR(changed.metrics().back()["loss"].get<double>(), loss, 1e-3 * loss);
}

void use_bf16(Job& job) { job.workload.train.precision = Precision::kBf16; }

TEST(WorkerMatrixUnits, Bf16GoesOnWithoutMatrixUnitsAndSaysThatItIsNotExact) {
  if (bf16_products() != Bf16Products::kMatrixUnits) {
    GTEST_SKIP() << "this processor has no matrix units, or " << kVariable << " rules them out";
  }
  const Job calm(2, use_bf16);
  const Manifest first = manifest_of(calm, "step-8.g1");
  EXPECT_EQ(first.environment.at("bf16_products"), "matrix_units");
  EXPECT_TRUE(first.exact);

  Job same(2);
  use_bf16(same);
  same.resume_from(calm, "step-3.g1", 3);
  ASSERT_THAT(same.run(), Each(kExitFinished)) << same.messages();
  EXPECT_TRUE(manifest_of(same, "step-8.g2").exact);
  EXPECT_EQ(same.digest("step-8.g2"), calm.digest("step-8.g1")) << broken_promise("digest");

  Job other(2);
  use_bf16(other);
  other.resume_from(calm, "step-3.g1", 3);
  {
    const ScopedVariable limit(kVariable, "AVX512_CORE_BF16");
    ASSERT_THAT(other.run(), Each(kExitFinished)) << other.messages();
  }
  const Manifest widened = manifest_of(other, "step-8.g2");
  EXPECT_EQ(widened.environment.at("bf16_products"), "widened");
  EXPECT_EQ(widened.environment.at("kernels"), first.environment.at("kernels"));
  EXPECT_FALSE(widened.exact);
  EXPECT_EQ(widened.inexact_reason,
            "bf16_products changed from matrix_units to widened after step 3");
  EXPECT_NE(other.digest("step-8.g2"), calm.digest("step-8.g1"));
}

}  // namespace
}  // namespace hpctl
