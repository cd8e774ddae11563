// SPDX-License-Identifier: Apache-2.0
// For every strategy and precision, and at the lowest level of kernels: a worker that dies in the
// middle of training leaves no trace in the bits of the result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/support/promise.h"
#include "tests/support/scoped_variable.h"
#include "tests/unit/trainer/worker_job.h"

namespace hpctl {
namespace {

using ::testing::Each;
using testing::Job;

struct Variant {
  const char* name;
  const char* strategy;
  const char* precision = "fp32";
  int world_size = 2;
  int64_t shard_group = 0;
  const char* kernels = "";  // the level that max_isa, a word for ONEDNN_MAX_CPU_ISA, leaves
  const char* max_isa = "";
};
class Faults : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(
    Every, Faults,
    ::testing::Values(Variant{"Full", "full"}, Variant{"FullBf16", "full", "bf16"},
                      Variant{"FullFp16", "full", "fp16"}, Variant{"ShardGradOp", "shard_grad_op"},
                      Variant{"Optimizer", "optimizer"}, Variant{"NoShard", "no_shard"},
                      Variant{"Hybrid", "hybrid", "fp32", 4, 2},
                      Variant{"FullAtTheBaseline", "full", "fp32", 2, 0, "baseline", "SSE41"}),
    [](const auto& info) { return info.param.name; });

void prepare(Job& job, const Variant& variant) {
  TrainSpec& train = job.workload.train;
  train.strategy = *from_word<Strategy>(variant.strategy);
  train.precision = *from_word<Precision>(variant.precision);
  train.shard_group = variant.shard_group;
  train.batch.global = 8;  // two micro-batches in a group of four, otherwise four
  // In fp16 it overflows before the fault and after it.
  train.loss_scale = {.initial = 1 << 24, .growth_interval = 3, .hysteresis = 2, .min = 1};
}

bool dies_after_step_six() { return setenv("HPCTL_FAILPOINT", "trainer.step.applied:6", 1) == 0; }

TEST_P(Faults, LeaveTheBitsAsTheyAre) {
  std::optional<testing::ScopedVariable> limit;
  if (*GetParam().max_isa != '\0') limit.emplace("ONEDNN_MAX_CPU_ISA", GetParam().max_isa);
  Job calm(GetParam().world_size);
  prepare(calm, GetParam());
  ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  const std::string undisturbed = calm.digest("step-8.g1");
  ASSERT_EQ(undisturbed.size(), 64U) << undisturbed;

  Job job(GetParam().world_size);
  prepare(job, GetParam());
  job.workload.checkpoint.every_steps = 1;
  job.prepared_rank = 1;
  job.in_child = dies_after_step_six;
  const std::vector<int> codes = job.run();
  EXPECT_EQ(codes[0], kExitPeerLost) << job.messages();
  EXPECT_EQ(codes[1], -SIGKILL);
  job.in_child = nullptr;
  const uint64_t from = job.resume_from_newest();
  ASSERT_LE(from, 6U);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), undisturbed)
      << "from step " << from << broken_promise("digest");
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_TRUE(manifest->exact) << manifest->inexact_reason;
  if (limit) {
    EXPECT_THAT(manifest->environment.at("kernels"),
                ::testing::StartsWith(std::string(GetParam().kernels) + " (revision "));
  }
  EXPECT_EQ(manifest->loss_scale.overflows > 0, GetParam().precision == std::string("fp16"));
}

}  // namespace
}  // namespace hpctl
