// SPDX-License-Identifier: Apache-2.0
// memory.offload on the stand-in for a GPU, which knows device memory from host memory and counts
// both: the bits of a run without it, less device memory by what the plan says, and checkpoints
// that do not know of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/promise.h"
#include "tests/unit/trainer/tensor_memory.h"
#include "tests/unit/trainer/torch_on_host.h"
#include "trainer/arch/registry.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {
namespace {

using testing::expect_finished;
using testing::Kind;
using testing::losses;
using testing::RankEnd;
using testing::train;
using testing::Variant;
using testing::VariantJob;
using Parts = std::vector<Offload>;

const Parts kActivations = {Offload::kActivations};
const Parts kOptimizer = {Offload::kOptimizer};
const Parts kParameters = {Offload::kParameters};  // and so the optimizer
const Parts kAll = {Offload::kOptimizer, Offload::kParameters, Offload::kActivations};

MemoryPlan plan_of(const testing::Job& job) {
  const PlanSetting setting = {.train = job.workload.train,
                               .nodes = 1,
                               .workers_per_node = job.workload.world_size,
                               .gpu = true};
  return plan_memory(setting, model_layout(setting.train.model));
}

// Without the copies of the state, of which these jobs keep none.
double sum_of(const std::vector<MemoryPart>& parts) {
  double sum = 0;
  for (const MemoryPart& part : parts) {
    if (part.name != std::string(kHostCopiesPart)) sum += part.bytes;
  }
  return sum;
}

double most(const std::vector<RankEnd>& ends, size_t RankEnd::*what) {
  size_t most = 0;
  for (const RankEnd& end : ends) most = std::max(most, end.*what);
  return static_cast<double>(most);
}

class Offloaded : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Variants, Offloaded,
                         ::testing::Values(Variant{"full", "fp32", "fp32", kOptimizer},
                                           Variant{"full", "bf16", "bf16", kOptimizer},
                                           Variant{"full", "fp16", "fp32", kOptimizer},
                                           Variant{"shard_grad_op", "bf16", "fp32", kOptimizer},
                                           Variant{"optimizer", "fp32", "bf16", kOptimizer},
                                           Variant{"no_shard", "bf16", "fp32", kOptimizer},
                                           Variant{"hybrid", "bf16", "fp32", kOptimizer},
                                           Variant{"full", "fp32", "bf16", kParameters},
                                           Variant{"full", "bf16", "fp32", kParameters},
                                           Variant{"hybrid", "bf16", "fp32", kParameters},
                                           Variant{"full", "fp32", "fp32", kParameters, 1},
                                           Variant{"full", "bf16", "bf16", kParameters, 1}));

// The stand-in's pieces are whole shards, so the plan's two pieces would be most of the state; many
// layers make them few.
TEST_P(Offloaded, SameBitsAndLessDeviceMemoryAsPlanned) {
  VariantJob without(GetParam());
  without.workload.train.memory.offload.clear();
  VariantJob with(GetParam());
  for (VariantJob* job : {&without, &with}) {
    TrainSpec& spec = job->workload.train;
    spec.model.layers = 8;
    spec.loss_scale.initial = 1024;
    spec.steps = 3;
    job->workload.checkpoint.every_steps = 0;
    spec.data.path = testing::documents_for(*job);
    spec.data.split = {0.8, 0.2, 0};
    spec.validation = {.every_steps = 3, .sequences = 2};
  }
  const std::vector<RankEnd> whole = train(without, Kind::kTorch);
  const std::vector<RankEnd> offloaded = train(with, Kind::kTorch);
  expect_finished(whole);
  expect_finished(offloaded);
  ASSERT_EQ(without.digest("step-3.g1").size(), 64U) << without.digest("step-3.g1");
  EXPECT_EQ(with.digest("step-3.g1"), without.digest("step-3.g1")) << broken_promise("digest");
  EXPECT_EQ(losses(with), losses(without)) << "of training and validation";

  const double saved = most(whole, &RankEnd::peak_bytes) - most(offloaded, &RankEnd::peak_bytes);
  const double planned = plan_of(without).total() - plan_of(with).total();
  EXPECT_GT(planned, 0.05 * most(whole, &RankEnd::peak_bytes)) << "there is something to see";
  EXPECT_NEAR(saved / planned, 1, 0.1) << saved << " bytes saved, " << planned << " planned";
  // A save then copies within the host's memory, which the device does not see.
  const double host =
      most(offloaded, &RankEnd::peak_host_bytes) + most(whole, &RankEnd::peak_host_bytes);
  const double planned_host = sum_of(plan_of(with).host);
  EXPECT_NEAR(host / planned_host, 1, 0.01) << host << " bytes, " << planned_host << " planned";
}

class OffloadedActivations : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(
    Variants, OffloadedActivations,
    ::testing::Values(Variant{"full", "fp32", "fp32", kActivations, 2, "selective"},
                      Variant{"full", "bf16", "bf16", kAll, 2, "full"},
                      Variant{"no_shard", "fp16", "fp32",
                              Parts{Offload::kActivations, Offload::kOptimizer}, 2, "full"},
                      Variant{"hybrid", "bf16", "fp32", kAll, 4, "selective"}));

TEST_P(OffloadedActivations, SameBits) {
  VariantJob without(GetParam());
  without.workload.train.memory.offload.clear();
  VariantJob with(GetParam());
  for (VariantJob* job : {&without, &with}) {
    job->workload.train.model.layers = 5;
    job->workload.train.steps = 3;
    job->workload.checkpoint.every_steps = 0;
    job->workload.train.loss_scale.initial = 1024;
  }
  expect_finished(train(without, Kind::kTorch));
  const std::vector<RankEnd> ends = train(with, Kind::kTorchNccl);
  expect_finished(ends);
  ASSERT_EQ(without.digest("step-3.g1").size(), 64U) << without.digest("step-3.g1");
  EXPECT_EQ(with.digest("step-3.g1"), without.digest("step-3.g1")) << broken_promise("digest");
  EXPECT_EQ(losses(with), losses(without));
  for (const char* part : {"activations", "state"}) {
    for (const MemoryPart& planned : plan_of(with).host) {
      if (planned.name != std::string(part)) continue;
      EXPECT_GE(most(ends, &RankEnd::peak_host_bytes), planned.bytes) << part << " left";
    }
  }
}

// All tensors of one worker, on its device but for a batch's few words.
TEST(Offload, ActivationsTakeLessAsPlanned) {
  const auto peak_of = [](const Parts& offload, MemoryPlan& plan) {
    VariantJob job({"full", "fp32", "fp32", offload, 1, "full"});
    TrainSpec& spec = job.workload.train;
    spec.model.layers = 16;
    spec.data.seq_len = 128;
    spec.batch.micro = 4;
    spec.loss.chunk_tokens = 64;
    spec.steps = 2;
    plan = plan_of(job);
    testing::TensorMemory& memory = testing::TensorMemory::counted();
    memory.begin();
    expect_finished(train(job, Kind::kTorch));
    return static_cast<double>(memory.peak());
  };
  MemoryPlan whole;
  MemoryPlan offloaded;
  const double saved = peak_of({}, whole) - peak_of(kActivations, offloaded);
  const double planned = whole.total() - offloaded.total();
  EXPECT_NEAR(planned, sum_of(offloaded.host) * 13 / 15, 1) << "15 of 16 leave, two are on the way";
  EXPECT_NEAR(saved / planned, 1, 0.1) << saved << " bytes saved, " << planned << " planned";
}

TEST(Offload, CheckpointsAreOfEitherKind) {
  const Variant plain = {"full", "bf16", "bf16"};
  const VariantJob whole(plain);
  expect_finished(train(whole, Kind::kTorch));
  for (const Parts& offload : {kOptimizer, kParameters}) {
    Variant offloaded = plain;
    offloaded.offload = offload;
    const VariantJob first(offloaded);
    expect_finished(train(first, Kind::kTorchNccl));
    const auto resume = [](const VariantJob& from, VariantJob& job) {
      job.resume_from(from, "step-3.g1", 3);
      expect_finished(train(job, Kind::kTorchNccl));
      return job.digest("step-8.g2");
    };
    VariantJob on(offloaded);
    VariantJob off(plain);
    EXPECT_EQ(resume(whole, on), whole.digest("step-8.g1")) << broken_promise("digest");
    EXPECT_EQ(resume(first, off), whole.digest("step-8.g1")) << broken_promise("digest");
    EXPECT_TRUE(read_manifest(on.workload.checkpoint_dir + "/step-8.g2").value().exact);
  }
}

// Going back fills the state anew, and with it the weights that the gathers begin from.
TEST(Offload, GoingBackRenewsTheWeights) {
  VariantJob job({"full", "bf16", "fp32", kOptimizer, 1});
  testing::TorchOnHost device(false);
  auto state = TrainingState::create(-1, job.workload, {}, {}, device);
  ASSERT_TRUE(state.ok()) << state.error().message;
  const auto weights = [&] {
    std::vector<uint16_t> copy(static_cast<size_t>(state->geometry().block_capacity[1]));
    const WeightShard shard = state->weight_shards()[1];
    EXPECT_TRUE(shard.rounded);
    device.download(shard.values, copy.data(), copy.size() * sizeof(uint16_t));
    return copy;
  };
  const std::vector<uint16_t> first = weights();
  std::vector<DeviceArray<float>> ones;
  std::vector<const float*> gradients;
  for (const int64_t capacity : state->geometry().block_capacity) {
    const std::vector<float> values(static_cast<size_t>(capacity), 1.0F);
    ones.emplace_back(device, values.size());
    device.upload(values.data(), ones.back().data(), values.size() * sizeof(float));
    gradients.push_back(ones.back().data());
  }
  state->apply(AdamStep(job.workload.train.optimizer, 1, 1e-1, 1.0), gradients, 4);
  EXPECT_NE(weights(), first);
  ASSERT_TRUE(state->go_back("").ok());
  EXPECT_EQ(weights(), first);
}

TEST(Offload, MovesNothingOnAHost) {
  VariantJob without({"full"});
  VariantJob with({"full", "fp32", "fp32", kAll, 2, "full"});
  expect_finished(train(without, Kind::kHost));
  const std::vector<RankEnd> ends = train(with, Kind::kHost);
  expect_finished(ends);
  EXPECT_EQ(with.digest("step-8.g1"), without.digest("step-8.g1")) << broken_promise("digest");
}

}  // namespace
}  // namespace hpctl
