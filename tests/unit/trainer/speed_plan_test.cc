// SPDX-License-Identifier: Apache-2.0
// The plan of a step's time against published figures, and the advice that weighs it against
// memory.
#include "trainer/plan/speed_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/trainer/planned_job.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"
#include "trainer/plan/advice.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {
namespace {

using test::kGiB;
using test::kStrategies;
using test::planned_job;
using test::total_of;
using testing::HasSubstr;

// TorchTitan's own table, 8B on 8 H100 with full sharding, batch 2, selective checkpointing, eager:
// 5,762 tokens/s per GPU. The range must hold it.
TEST(SpeedPlan, PublishedThroughputLiesInTheRange) {
  PlanSetting s = planned_job("llama3-8b", 1, 16);
  s.train.batch.micro = 2;
  const SpeedPlan plan = plan_speed(s, model_layout(s.train.model), *find_gpu_model("h100"));
  const double low = plan.tokens_per_step / plan.step_high_s / 8;
  const double high = plan.tokens_per_step / plan.step_low_s / 8;
  EXPECT_LT(low, 5762);
  EXPECT_GT(high, 6667) << "compiled";
  EXPECT_NEAR(plan.mfu_high, kUsualMfuHigh, 1e-9) << "communication is hidden within a node";
}

// AWS' own measurement on 4 p5.48xlarge over EFA with TorchTitan's defaults (batch 1, selective
// checkpointing, eager): 6,785 tokens/s per GPU, MFU 39.7 %.
TEST(SpeedPlan, MeasuredThroughputOverEfaLiesInTheRange) {
  const PlanSetting s = planned_job("llama3-8b", 4, 32);
  const SpeedPlan plan = plan_speed(s, model_layout(s.train.model), *find_gpu_model("h100"));
  EXPECT_LT(plan.mfu_low, 0.397);
  EXPECT_GT(plan.mfu_high, 0.397);
  EXPECT_LT(plan.tokens_per_step / plan.step_high_s / 32, 6785);
  EXPECT_GT(plan.tokens_per_step / plan.step_low_s / 32, 6785);
}

// nccl-tests' all_reduce between two nodes, as AWS publishes it: busbw of 1 GiB and more is 437 to
// 487 GB/s on p5 and 76.8 to 78.3 on p4de. Gradients kept whole are one such message.
TEST(SpeedPlan, MessagesOverEfaTakeAtMostTwiceAsLongAsMeasured) {
  PlanSetting s = planned_job("llama3-8b", 2, 16);
  s.train.strategy = Strategy::kNoShard;
  const auto blocks = model_layout(s.train.model);
  const auto busbw = [&](const char* device) {
    const SpeedPlan plan = plan_speed(s, blocks, *find_gpu_model(device));
    return plan.send_bytes / plan.communication_s;
  };
  EXPECT_GT(busbw("h100"), 437e9 / 2);
  EXPECT_LT(busbw("h100"), 437e9);
  EXPECT_GT(busbw("a100"), 76.8e9 / 2.1);
  EXPECT_LT(busbw("a100"), 76.8e9);
}

// Replicas of a node's shards send over an adapter each, whole replicas over all of them.
TEST(SpeedPlan, ReplicasShareTheAdaptersOfANode) {
  PlanSetting s = planned_job("llama3-8b", 4, 32);
  const auto blocks = model_layout(s.train.model);
  const GpuModel& device = *find_gpu_model("a100");
  s.train.strategy = Strategy::kHybrid;
  const double hybrid = plan_speed(s, blocks, device).communication_s;
  s.train.strategy = Strategy::kFull;
  EXPECT_LT(hybrid, plan_speed(s, blocks, device).communication_s);
  const double shard = static_cast<double>(parameter_count(blocks)) / 8 * 4;
  EXPECT_GT(hybrid, 2 * 0.75 * shard / (0.75 * device.net_bytes_per_s)) << "and within the node";
}

TEST(SpeedPlan, SlowLinksAndRecomputationCost) {
  PlanSetting s = planned_job("llama3-8b", 4, 32);
  const auto blocks = model_layout(s.train.model);
  const SpeedPlan fast = plan_speed(s, blocks, *find_gpu_model("h100"));
  const SpeedPlan slow = plan_speed(s, blocks, *find_gpu_model("a100"));
  EXPECT_GT(slow.communication_s, 4 * fast.communication_s);
  s.train.memory.activation_checkpointing = Checkpointing::kFull;
  EXPECT_NEAR(plan_speed(s, blocks, *find_gpu_model("h100")).compute_low_s,
              fast.compute_low_s * 4 / 3, 1e-9);
  s.train.strategy = Strategy::kNoShard;
  EXPECT_NEAR(plan_speed(s, blocks, *find_gpu_model("h100")).send_bytes,
              2.0 * 31 / 32 * 4 * static_cast<double>(parameter_count(blocks)), 1);
}

// 4 x 8 A100 and a model whose frozen weights are 300 times the adapters.
PlanSetting adapters_of_70b() {
  PlanSetting s = planned_job("llama3-70b", 4, 128);
  s.train.data.seq_len = 512;
  s.train.batch.micro = 4;
  s.train.lora.rank = 16;
  return s;
}
constexpr double kFrozen = 70'553'706'496;
constexpr double kAdapters = 207'093'760;

// Bytes of a worker and step: what is frozen is gathered in bf16 where the adapters are, and
// nothing of it is reduced in fp32. Where the adapters are kept for a step, it is kept for all.
TEST(SpeedPlan, FrozenWeightsAreGatheredUnlessTheyAreKeptAndNeverReduced) {
  PlanSetting s = adapters_of_70b();
  const auto blocks = trained_layout(s.train);
  ASSERT_EQ(static_cast<double>(parameter_count(blocks)), kAdapters);
  ASSERT_EQ(static_cast<double>(parameter_count(model_layout(s.train.model))), kFrozen);
  const GpuModel& device = *find_gpu_model("a100");
  const auto sent = [&](Strategy strategy, int64_t micro) {
    s.train.strategy = strategy;
    s.train.batch.micro = micro;
    return plan_speed(s, blocks, device).send_bytes * 32 / 31;
  };
  EXPECT_NEAR(sent(Strategy::kFull, 4), kFrozen * 2 * 2 + kAdapters * (2 * 2 + 4), 1);
  EXPECT_NEAR(sent(Strategy::kFull, 1), 4 * (kFrozen * 2 * 2 + kAdapters * (2 * 2 + 4)), 1);
  EXPECT_NEAR(sent(Strategy::kShardGradOp, 1), kAdapters * (2 + 4 * 4), 1);
  EXPECT_NEAR(sent(Strategy::kOptimizer, 1), kAdapters * (2 + 4), 1);
  EXPECT_NEAR(sent(Strategy::kNoShard, 1), kAdapters * 2 * 4, 1);
  s.train.reshard_after_forward = Reshard::kNever;
  EXPECT_NEAR(sent(Strategy::kFull, 1), kAdapters * (2 + 4 * 4), 1);
  s.train.reshard_after_forward = Reshard::kAuto;
  s.train.precision = Precision::kFp32;
  EXPECT_NEAR(sent(Strategy::kFull, 4), kFrozen * 2 * 4 + kAdapters * (2 * 4 + 4), 1);
}

// Eight adapters of 6.25 GB/s a node, or within each node NVLink of 300 GB/s.
TEST(SpeedPlan, FrozenWeightsDecideOverHybrid) {
  PlanSetting s = adapters_of_70b();
  const auto blocks = trained_layout(s.train);
  const GpuModel& device = *find_gpu_model("a100");
  const double gathered = kFrozen * 2 * 2 + kAdapters * (2 * 2 + 4);
  const SpeedPlan full = plan_speed(s, blocks, device);
  EXPECT_NEAR(full.communication_s, gathered * 31 / 32 / (0.75 * 8 * 6.25e9), 1e-6);
  EXPECT_GT(full.communication_s, full.compute_high_s) << "it decides";
  s.train.strategy = Strategy::kHybrid;
  const SpeedPlan hybrid = plan_speed(s, blocks, device);
  const double between = 2 * kAdapters / 8 * 4 * 3 / 4;
  EXPECT_NEAR(hybrid.communication_s, gathered * 7 / 8 / (0.75 * 300e9) + between / (0.75 * 6.25e9),
              1e-6);
  EXPECT_LT(hybrid.communication_s, hybrid.compute_low_s) << "hidden";
}

// The forward pass of a frozen parameter is half of what it takes.
TEST(SpeedPlan, RecomputationBesideFrozenWeightsAddsHalf) {
  PlanSetting s = adapters_of_70b();
  const auto blocks = trained_layout(s.train);
  const GpuModel& device = *find_gpu_model("a100");
  const SpeedPlan none = plan_speed(s, blocks, device);
  const auto adds = [&](Checkpointing checkpointing) {
    s.train.memory.activation_checkpointing = checkpointing;
    const SpeedPlan plan = plan_speed(s, blocks, device);
    EXPECT_NEAR(plan.compute_low_s / none.compute_low_s, plan.recompute, 1e-9);
    return plan.recompute - 1;
  };
  const double looked_up = 128256.0 * 8192;
  const double pairs = 80 * 8192.0 * 512;
  const double forward = 2 * (kFrozen - looked_up + kAdapters) + 4 * pairs;
  const double whole = 4 * (kFrozen - looked_up) + 6 * kAdapters + 12 * pairs;
  EXPECT_EQ(adds(Checkpointing::kNone), 0);
  EXPECT_NEAR(adds(Checkpointing::kFull), forward / whole, 1e-9);
  EXPECT_NEAR(adds(Checkpointing::kFull), 0.5, 0.005);
  EXPECT_NEAR(adds(Checkpointing::kSelective), forward / whole / 2, 1e-9);
  EXPECT_NEAR(adds(Checkpointing::kOperations), 0.075, 0.001);
  s.train.lora = {};
  const auto all = model_layout(s.train.model);
  EXPECT_NEAR(plan_speed(s, all, device).recompute, 1.05, 1e-9) << "nothing is frozen";
}

// Outside the matrix units, since products of fp32 are of fp32: an H100 has 67 of 989 TFLOP/s.
TEST(SpeedPlan, InFp32TheGpuHasItsPeakInFp32) {
  PlanSetting s = planned_job("llama3-8b", 1, 16);
  const auto blocks = model_layout(s.train.model);
  const GpuModel& device = *find_gpu_model("h100");
  const SpeedPlan narrow = plan_speed(s, blocks, device);
  s.train.precision = Precision::kFp16;
  EXPECT_EQ(plan_speed(s, blocks, device).compute_low_s, narrow.compute_low_s);
  s.train.precision = Precision::kFp32;
  const SpeedPlan wide = plan_speed(s, blocks, device);
  EXPECT_NEAR(wide.compute_low_s / narrow.compute_low_s, 989.0 / 67, 1e-9);
  EXPECT_NEAR(wide.compute_high_s / narrow.compute_high_s, 989.0 / 67, 1e-9);
  EXPECT_NEAR(wide.mfu_high, kUsualMfuHigh * 67 / 989, 1e-9) << "of the peak in bf16, as a job's";
  for (const GpuModel& gpu : gpu_models()) {
    EXPECT_GT(gpu.fp32_flops, 0) << gpu.name;
    EXPECT_LT(gpu.fp32_flops, gpu.peak_flops) << gpu.name;
  }
}

TEST(Advice, MakesAJobFitThatDidNot) {
  const GpuModel& device = *find_gpu_model("h100");
  const PlanSetting s = planned_job("llama3-70b", 1, 512);
  const auto blocks = model_layout(s.train.model);
  ASSERT_GT(total_of(s), device.memory_bytes);
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kStrategies);
  ASSERT_FALSE(advice.changes.empty());
  PlanSetting changed = s;
  for (const Change& a : advice.changes) {
    const size_t colon = a.change.find(": ");
    const std::string key = a.change.substr(0, colon);
    const std::string value = a.change.substr(colon + 2);
    EXPECT_THAT(a.reason, HasSubstr("memory ")) << "each line says what it does";
    if (key == "nodes") changed.nodes = std::stoi(value);
    if (key.ends_with("strategy")) changed.train.strategy = *from_word<Strategy>(value);
    if (key.ends_with("micro")) changed.train.batch.micro = std::stoi(value);
    if (key.ends_with("chunk_tokens")) changed.train.loss.chunk_tokens = std::stoi(value);
    if (key.ends_with("checkpointing")) {
      changed.train.memory.activation_checkpointing = *from_word<Checkpointing>(value);
    }
  }
  EXPECT_GT(changed.nodes, 1);
  EXPECT_LE(total_of(changed), device.memory_bytes * kUsableMemory);
  EXPECT_EQ(total_of(changed), total_of(*advice.setting)) << "the setting has all changes";
  changed.nodes /= 2;
  const Advice half = advise(changed, blocks, device, device.memory_bytes, kStrategies);
  EXPECT_GT(half.setting->nodes, changed.nodes)
      << "half as many do not do, whatever else is changed";
}

// 8B on 4 x 8 H100, four sequences at a time, needs more than 80 GiB: what saves memory comes
// first, and what the room is then good for is told with the memory that it really leaves.
TEST(Advice, ChangesBuildOnOneAnother) {
  const GpuModel& device = *find_gpu_model("h100");
  PlanSetting s = planned_job("llama3-8b", 4, 128);
  s.train.batch.micro = 4;
  const auto blocks = model_layout(s.train.model);
  ASSERT_GT(total_of(s), device.memory_bytes);
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kStrategies);
  ASSERT_FALSE(advice.changes.empty());
  double before = total_of(s);
  for (const Change& change : advice.changes) {
    double from = 0;
    double to = 0;
    const char* effect = std::strstr(change.reason.c_str(), "memory ");
    ASSERT_NE(effect, nullptr);
    ASSERT_EQ(std::sscanf(effect, "memory %lf -> %lf GiB", &from, &to), 2) << change.reason;
    EXPECT_NEAR(from, before / kGiB, 0.06) << change.change;
    before = to * kGiB;
  }
  EXPECT_NEAR(before, total_of(*advice.setting), 0.06 * kGiB);
  EXPECT_LE(before, device.memory_bytes * kUsableMemory);
}

// Short sequences on nodes that are joined by something slow: 1.1 s a step, where full takes 1.6 s.
TEST(Advice, ConsidersHybridOnSeveralNodes) {
  const GpuModel& device = *find_gpu_model("a100");
  std::vector<Strategy> strategies = kStrategies;
  strategies.push_back(Strategy::kHybrid);
  PlanSetting s = planned_job("llama3-8b", 2, 16);
  s.train.data.seq_len = 512;
  const auto blocks = model_layout(s.train.model);
  const Advice advice = advise(s, blocks, device, device.memory_bytes, strategies);
  ASSERT_EQ(advice.changes.size(), 1U);
  EXPECT_EQ(advice.changes[0].change, "workload.train.parallelism.strategy: hybrid");
  EXPECT_THAT(advice.changes[0].reason, HasSubstr("only gradients of shards pass"));
  EXPECT_EQ(advice.setting->train.strategy, Strategy::kHybrid);
  // On one node it is full by another name, for whoever has that.
  s.nodes = 1;
  s.train.batch.global = 8;
  for (const Strategy given : strategies) {
    s.train.strategy = given;
    s.train.memory.activation_checkpointing = Checkpointing::kFull;
    const Advice on_one = advise(s, blocks, device, device.memory_bytes, {Strategy::kHybrid});
    for (const Change& change : on_one.changes) {
      EXPECT_THAT(change.change, testing::Not(HasSubstr("hybrid")));
    }
    if (given == Strategy::kHybrid) {
      ASSERT_EQ(on_one.changes.size(), 1U);
      EXPECT_THAT(on_one.changes[0].change, HasSubstr("activation_checkpointing: none"));
    }
  }
}

TEST(Advice, KeepsGathersOfFrozenWeightsWithinANode) {
  const GpuModel& device = *find_gpu_model("a100");
  std::vector<Strategy> strategies = kStrategies;
  strategies.push_back(Strategy::kHybrid);
  const PlanSetting s = adapters_of_70b();
  const Advice advice = advise(s, trained_layout(s.train), device, device.memory_bytes, strategies);
  ASSERT_TRUE(advice.setting.has_value());
  EXPECT_EQ(advice.setting->train.strategy, Strategy::kHybrid);
}

TEST(Advice, ARampHasASequenceForEachWorkerFromTheBeginning) {
  const GpuModel& device = *find_gpu_model("h100");
  PlanSetting s = planned_job("llama3-70b", 1, 512);
  const auto blocks = model_layout(s.train.model);
  ASSERT_GT(advise(s, blocks, device, device.memory_bytes, kStrategies).setting->nodes, 1);
  s.train.batch.ramp = {{100, 8}};
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kStrategies);
  for (const Change& change : advice.changes) {
    EXPECT_THAT(change.change, testing::Not(HasSubstr("nodes: ")));
  }
}

TEST(Advice, NamesOffloadWhereMoreNodesWouldDo) {
  const GpuModel& device = *find_gpu_model("h100");
  PlanSetting s = planned_job("llama3-8b", 1, 8);
  s.workers_per_node = 1;
  const auto blocks = model_layout(s.train.model);
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kStrategies);
  ASSERT_FALSE(advice.changes.empty());
  EXPECT_THAT(advice.changes[0].change, HasSubstr("nodes: "));
  ASSERT_EQ(advice.instead.size(), 1U);
  EXPECT_THAT(advice.instead[0].change, HasSubstr("workload.train.memory.offload: [optimizer"));
  EXPECT_THAT(advice.instead[0].reason, HasSubstr("host memory "));
}

TEST(Advice, SaysWhenNothingHelps) {
  const GpuModel& device = *find_gpu_model("a10g");
  const PlanSetting s = planned_job("llama3-405b", 1, 8);
  const Advice advice =
      advise(s, model_layout(s.train.model), device, device.memory_bytes, kStrategies);
  ASSERT_EQ(advice.changes.size(), 1U);
  EXPECT_THAT(advice.changes[0].change, HasSubstr("more memory"));
  EXPECT_FALSE(advice.setting.has_value());
}

TEST(Advice, LeavesAGoodJobAlone) {
  const GpuModel& device = *find_gpu_model("h200");
  PlanSetting s = planned_job("llama3-8b", 1, 8);
  const auto blocks = model_layout(s.train.model);
  ASSERT_LE(total_of(s), device.memory_bytes * kUsableMemory);
  EXPECT_TRUE(advise(s, blocks, device, device.memory_bytes, kStrategies).changes.empty());
  s.train.memory.activation_checkpointing = Checkpointing::kFull;
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kStrategies);
  ASSERT_FALSE(advice.changes.empty());
  EXPECT_EQ(advice.changes[0].change, "workload.train.memory.activation_checkpointing: none");
}

}  // namespace
}  // namespace hpctl
