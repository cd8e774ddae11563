// SPDX-License-Identifier: Apache-2.0
// The plan against known figures. Against real workers: worker_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"
#include "trainer/plan/advice.h"
#include "trainer/plan/fit.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/speed_plan.h"

namespace hpctl {
namespace {

using testing::HasSubstr;

constexpr double kGiB = 1024.0 * 1024 * 1024;
const std::vector<Strategy> kAll = {Strategy::kNoShard, Strategy::kOptimizer,
                                    Strategy::kShardGradOp, Strategy::kFull};

PlanSetting setting_of(const char* preset, int32_t nodes, int64_t global) {
  PlanSetting s;
  s.train.model = *model_preset(preset);
  s.train.data.seq_len = 8192;
  s.train.batch.global = global;
  s.nodes = nodes;
  s.workers_per_node = 8;
  s.gpu = true;
  return s;
}

std::map<std::string, double> parts_of(const PlanSetting& s) {
  std::map<std::string, double> parts;
  for (const MemoryPart& part : plan_memory(s, model_layout(s.train.model)).parts) {
    parts[part.name] = part.bytes;
  }
  return parts;
}

// fp32 parameters, gradients and two moments are 16 bytes each: 119.7 GiB for 8B on one GPU, as
// everybody computes it.
TEST(MemoryPlan, StateIsSixteenBytesPerParameterOverTheShards) {
  PlanSetting one = setting_of("llama3-8b", 1, 8);
  one.workers_per_node = 1;
  one.train.strategy = Strategy::kNoShard;
  auto parts = parts_of(one);
  EXPECT_NEAR((parts["parameters"] + parts["moments"] + parts["gradients"]) / kGiB, 119.7, 0.05);
  EXPECT_NEAR(parts["gathered blocks"] / kGiB, 119.7 / 8, 0.05) << "bf16";
  const double parameters = parts["parameters"];
  parts = parts_of(setting_of("llama3-8b", 4, 32));
  EXPECT_NEAR(parts["parameters"] / (parameters / 32), 1, 1e-4);
  one.train.optimizer.moments = MomentType::kBf16;
  EXPECT_EQ(parts_of(one)["moments"], parameters);
}

// What is trained has gradients and moments; the rest is there once, in the type of computation.
TEST(MemoryPlan, OfAFrozenModelNothingIsKeptButItself) {
  PlanSetting whole = setting_of("llama3-8b", 1, 8);
  const auto before = parts_of(whole);
  PlanSetting adapters = whole;
  adapters.train.lora.rank = 16;
  std::map<std::string, double> parts;
  const std::vector<Block> trained = trained_layout(adapters.train);
  for (const MemoryPart& part : plan_memory(adapters, trained).parts) {
    parts[part.name] = part.bytes;
  }
  // As PEFT counts them for all seven matrices of Llama 3 8B at rank 16.
  EXPECT_EQ(parameter_count(trained), 41'943'040);
  EXPECT_NEAR(parts["base"], before.at("parameters") / 2, 1e6) << "bf16 instead of fp32";
  EXPECT_NEAR(parts["moments"], 2 * 4 * 41'943'040 / 8.0, 1e5);
  EXPECT_LT(parts["gradients"], before.at("gradients") / 100);
  EXPECT_EQ(parts["gathered base"], before.at("gathered blocks"));
  EXPECT_GE(parts["activations"], before.at("activations"));
}

// Four slots of its own, of which a save reads one, and two for a peer's.
TEST(MemoryPlan, CopiesAtPeersAreOfHostMemoryOnSeveralNodesAndShardedOverAllRanks) {
  PlanSetting s = setting_of("llama3-8b", 2, 16);
  EXPECT_FALSE(parts_of(s).contains("snapshots at peers")) << "the state is the GPU's";
  s.gpu = false;
  auto parts = parts_of(s);
  EXPECT_EQ(parts["snapshots at peers"], parts["parameters"] + parts["moments"]);
  s.snapshots = false;
  EXPECT_FALSE(parts_of(s).contains("snapshots at peers"));
  s.snapshots = true;
  s.nodes = 1;
  EXPECT_FALSE(parts_of(s).contains("snapshots at peers"));
  s.nodes = 2;
  s.train.strategy = Strategy::kNoShard;
  EXPECT_FALSE(parts_of(s).contains("snapshots at peers")) << "replicas serve";
}

// On a GPU no fused kernel takes fp32 (trainer/arch/attention.cc), so a layer keeps its weights of
// attention, heads x tokens x tokens, and there is a mask. Nor a window and heads that flash
// attention does not take.
TEST(MemoryPlan, WithoutAFusedKernelTheWeightsOfAttentionStay) {
  PlanSetting s = setting_of("llama3-8b", 1, 8);
  const double pairs = 8192.0 * 8192;
  EXPECT_FALSE(parts_of(s).contains("attention mask"));
  const double fused = parts_of(s)["activations"];
  s.train.precision = Precision::kFp32;
  auto parts = parts_of(s);
  EXPECT_EQ(parts["attention mask"], 4 * pairs);
  EXPECT_GT(parts["activations"], fused + 32 * 32 * pairs * 4) << "32 layers of 32 heads";
  s.train.memory.activation_checkpointing = Checkpointing::kOperations;
  EXPECT_LT(parts_of(s)["activations"], 32 * 32 * pairs * 4) << "they are computed again";
  EXPECT_GT(parts_of(s)["one layer's backward"], 2.9 * 32 * pairs * 4)
      << "of one layer they are there, less what its feed-forward part has given back";
  s.gpu = false;
  EXPECT_FALSE(parts_of(s).contains("attention mask")) << "our own kernel takes it";
  PlanSetting windowed = setting_of("llama3-8b", 1, 8);
  windowed.train.model.sliding_window = 4096;
  EXPECT_FALSE(parts_of(windowed).contains("attention mask"));
  windowed.train.model.head_dim = 124;
  EXPECT_EQ(parts_of(windowed)["attention mask"], 4 * pairs);
  windowed.train.model.sliding_window = 8192;
  EXPECT_FALSE(parts_of(windowed).contains("attention mask")) << "none";
}

TEST(MemoryPlan, ProductsThatTheJobAsksForKeepTheirWeights) {
  PlanSetting s = setting_of("llama3-8b", 1, 8);
  const double pairs = 8192.0 * 8192;
  const double fused = parts_of(s)["activations"];
  for (const GpuAttention one : {GpuAttention::kFlash, GpuAttention::kCudnn}) {
    s.train.gpu.attention = one;
    EXPECT_EQ(parts_of(s)["activations"], fused);
  }
  s.train.gpu.attention = GpuAttention::kProducts;
  EXPECT_EQ(parts_of(s)["attention mask"], 4 * pairs);
  EXPECT_GT(parts_of(s)["activations"], fused + 32 * 32 * pairs * 5.9) << "in fp32 and in bf16";
  s.gpu = false;
  EXPECT_FALSE(parts_of(s).contains("attention mask")) << "a CPU does not ask";
}

// Kernels take norms and SwiGLU in any type, on a GPU as on a CPU, and keep what goes in and comes
// out; so does attention, which has a number per head besides.
TEST(MemoryPlan, BetweenProductsNothingWideIsKept) {
  PlanSetting s = setting_of("llama3-8b", 1, 8);
  const double row = 4096;
  const double key_row = 1024;
  const double kept = row * (1 + 3) + row * 2 + key_row * 2 + 14336 * 3;
  EXPECT_EQ(parts_of(s)["activations"], 8192.0 * 32 * (kept * 2 + 32 * 4));
  s.gpu = false;
  EXPECT_EQ(parts_of(s)["activations"], 8192.0 * 32 * (kept * 2 + 32 * 4));
  s.gpu = true;
  s.train.memory.activation_checkpointing = Checkpointing::kOperations;
  const double products = row * (1 + 1) + row * 2 + key_row * 2 + 14336 * 2;
  EXPECT_EQ(parts_of(s)["activations"], 8192.0 * 32 * (products * 2 + 32 * 4));
}

// The loss takes them as they are (trainer/arch/fused_rows.h), but a CPU's those of fp16 in fp32;
// their gradient is written over them.
TEST(MemoryPlan, LogitsAreAsNarrowAsTheModel) {
  PlanSetting s = setting_of("llama3-8b", 1, 8);
  const double logits = 8192.0 * 128256;
  EXPECT_EQ(parts_of(s)["logits"], logits * 2);
  s.train.precision = Precision::kFp32;
  s.train.data.seq_len = 64;  // else attention in fp32 takes more
  EXPECT_EQ(parts_of(s)["logits"], 64.0 * 128256 * 4);
  s = setting_of("llama3-8b", 1, 8);
  s.gpu = false;
  EXPECT_EQ(parts_of(s)["logits"], logits * 2);
  s.train.precision = Precision::kFp16;
  EXPECT_EQ(parts_of(s)["logits"], logits * (2 + 4))
      << "a copy in fp32, which their gradient replaces";
}

TEST(MemoryPlan, EachStrategyKeepsWhatItSays) {
  std::map<std::string, double> total;
  for (const Strategy strategy : kAll) {
    PlanSetting s = setting_of("llama3-8b", 1, 8);
    s.train.strategy = strategy;
    total[to_word(strategy)] = plan_memory(s, model_layout(s.train.model)).total();
  }
  EXPECT_LT(total["full"], total["shard_grad_op"]);
  EXPECT_LT(total["shard_grad_op"], total["optimizer"]);
  EXPECT_LT(total["optimizer"], total["no_shard"]);
  PlanSetting s = setting_of("llama3-8b", 1, 8);
  const double none = parts_of(s)["activations"];
  s.train.memory.activation_checkpointing = Checkpointing::kOperations;
  const double operations = parts_of(s)["activations"];
  EXPECT_LT(operations, 0.7 * none);
  s.train.memory.activation_checkpointing = Checkpointing::kSelective;
  const double selective = parts_of(s)["activations"];
  s.train.memory.activation_checkpointing = Checkpointing::kFull;
  const double full = parts_of(s)["activations"];
  EXPECT_EQ(full, 32.0 * 8192 * 4096 * 2) << "the inputs of the layers in bf16";
  EXPECT_GT(operations, 2 * full);
  EXPECT_NEAR(selective, (none + full) / 2, 1) << "every second of 32 layers";
  s.train.loss.chunk_tokens = 1024;
  EXPECT_LT(plan_memory(s, model_layout(s.train.model)).total(), total["full"]);
}

// 8 bytes of moments and 4 - 2 of weights less per parameter of the shard, more of host memory.
TEST(MemoryPlan, OffloadMovesTheStateToTheHost) {
  PlanSetting s = setting_of("llama3-8b", 1, 8);
  const auto blocks = model_layout(s.train.model);
  const double parameters = static_cast<double>(parameter_count(blocks)) / 8;
  const double without = plan_memory(s, blocks).total();
  EXPECT_TRUE(plan_memory(s, blocks).host.empty());
  s.train.memory.offload = {Offload::kOptimizer};
  const MemoryPlan plan = plan_memory(s, blocks);
  const double pieces = 2.0 * kOffloadPiece * 12;
  EXPECT_NEAR((without - plan.total() + pieces) / (10 * parameters), 1, 1e-3);
  ASSERT_EQ(plan.host.size(), 2U);
  EXPECT_NEAR(plan.host[0].bytes / (12 * parameters), 1, 1e-3);
  const SpeedPlan speed = plan_speed(s, blocks, *find_gpu_model("h100"));
  EXPECT_NEAR(speed.offload_s, 12 * parameters / (0.75 * 64e9), 1e-3);
  s.train.memory.offload = {Offload::kParameters};
  const MemoryPlan more = plan_memory(s, blocks);
  const double rounded = 2.0 * kOffloadPiece * 2;
  EXPECT_NEAR((plan.total() - more.total() + rounded) / (2 * parameters), 1, 1e-3) << "the weights";
  ASSERT_EQ(more.host.size(), 3U);
  s.gpu = false;
  EXPECT_TRUE(plan_memory(s, blocks).host.empty()) << "nothing to move on a CPU";
}

TEST(Fit, NamesTheLargestPartAndWhatToChange) {
  MemoryPlan plan;
  plan.parts = {{"moments", 4 * kGiB, ""}, {"activations", 2 * kGiB, ""}};
  EXPECT_TRUE(check_fit(plan, 2, 12 * kGiB).ok());
  const Outcome state = check_fit(plan, 2, 11 * kGiB);
  ASSERT_FALSE(state.ok());
  EXPECT_THAT(
      state.error().message,
      HasSubstr("out of memory: 2 workers need 12.0 GiB and this machine has 11.0 GiB; most "
                "of it is moments, 4.0 GiB of each; use a smaller"));
  plan.parts[1].bytes = 5 * kGiB;
  EXPECT_THAT(check_fit(plan, 1, kGiB).error().message,
              HasSubstr("lower workload.train.batch.micro"));
  EXPECT_GT(machine_memory_bytes(), 64.0 * 1024 * 1024);
}

// TorchTitan's own table, 8B on 8 H100 with full sharding, batch 2, selective checkpointing, eager:
// 5,762 tokens/s per GPU. The range must hold it.
TEST(SpeedPlan, PublishedThroughputLiesInTheRange) {
  PlanSetting s = setting_of("llama3-8b", 1, 16);
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
  const PlanSetting s = setting_of("llama3-8b", 4, 32);
  const SpeedPlan plan = plan_speed(s, model_layout(s.train.model), *find_gpu_model("h100"));
  EXPECT_LT(plan.mfu_low, 0.397);
  EXPECT_GT(plan.mfu_high, 0.397);
  EXPECT_LT(plan.tokens_per_step / plan.step_high_s / 32, 6785);
  EXPECT_GT(plan.tokens_per_step / plan.step_low_s / 32, 6785);
}

// nccl-tests' all_reduce between two nodes, as AWS publishes it: busbw of 1 GiB and more is 437 to
// 487 GB/s on p5 and 76.8 to 78.3 on p4de. Gradients kept whole are one such message.
TEST(SpeedPlan, MessagesOverEfaTakeAtMostTwiceAsLongAsMeasured) {
  PlanSetting s = setting_of("llama3-8b", 2, 16);
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
  PlanSetting s = setting_of("llama3-8b", 4, 32);
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
  PlanSetting s = setting_of("llama3-8b", 4, 32);
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
  PlanSetting s = setting_of("llama3-70b", 4, 128);
  s.train.data.seq_len = 512;
  s.train.batch.micro = 4;
  s.train.lora.rank = 16;
  return s;
}
constexpr double kFrozen = 70'553'706'496;
constexpr double kAdapters = 207'093'760;

// Bytes of a worker and step: what is frozen is gathered in bf16 wherever the adapters are, and
// nothing of it is reduced in fp32.
TEST(SpeedPlan, FrozenWeightsAreGatheredAndNeverReduced) {
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
  EXPECT_NEAR(sent(Strategy::kShardGradOp, 1), kFrozen * 2 + kAdapters * (2 + 4 * 4), 1);
  EXPECT_NEAR(sent(Strategy::kOptimizer, 1), kFrozen * 2 + kAdapters * (2 + 4), 1);
  EXPECT_NEAR(sent(Strategy::kNoShard, 1), kAdapters * 2 * 4, 1);
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
  PlanSetting s = setting_of("llama3-8b", 1, 16);
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

double total_of(const PlanSetting& s) {
  return plan_memory(s, model_layout(s.train.model)).total();
}

TEST(MemoryPlan, TheMostIsOnTheFewestNodesOrOnTwo) {
  const auto most_of = [](const PlanSetting& s) {
    return most_memory(s, model_layout(s.train.model));
  };
  PlanSetting s = setting_of("llama3-8b", 4, 512);
  EXPECT_EQ(most_of(s), total_of(s)) << "it never has fewer";
  s.min_nodes = 2;
  PlanSetting few = s;
  few.nodes = 2;
  EXPECT_EQ(most_of(s), total_of(few));
  EXPECT_GT(most_of(s), total_of(s));
  // On a CPU two nodes have copies at peers, and two workers gather the large embedding.
  s.train.model = *model_preset("tiny");
  s.train.model.vocab = 32'000;
  s.train.precision = Precision::kFp32;
  s.train.data.seq_len = 64;
  s.gpu = false;
  s.workers_per_node = 1;
  s.min_nodes = 1;
  PlanSetting one = s;
  one.nodes = 1;
  few = s;
  few.nodes = 2;
  EXPECT_GT(total_of(few), total_of(one));
  EXPECT_GT(total_of(few), total_of(s));
  EXPECT_EQ(most_of(s), total_of(few));
}

TEST(Advice, MakesAJobFitThatDidNot) {
  const GpuModel& device = *find_gpu_model("h100");
  const PlanSetting s = setting_of("llama3-70b", 1, 512);
  const auto blocks = model_layout(s.train.model);
  ASSERT_GT(total_of(s), device.memory_bytes);
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kAll);
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
  const Advice half = advise(changed, blocks, device, device.memory_bytes, kAll);
  EXPECT_GT(half.setting->nodes, changed.nodes)
      << "half as many do not do, whatever else is changed";
}

// 8B on 4 x 8 H100, four sequences at a time, needs more than 80 GiB: what saves memory comes
// first, and what the room is then good for is told with the memory that it really leaves.
TEST(Advice, ChangesBuildOnOneAnother) {
  const GpuModel& device = *find_gpu_model("h100");
  PlanSetting s = setting_of("llama3-8b", 4, 128);
  s.train.batch.micro = 4;
  const auto blocks = model_layout(s.train.model);
  ASSERT_GT(total_of(s), device.memory_bytes);
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kAll);
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
  std::vector<Strategy> strategies = kAll;
  strategies.push_back(Strategy::kHybrid);
  PlanSetting s = setting_of("llama3-8b", 2, 16);
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
  std::vector<Strategy> strategies = kAll;
  strategies.push_back(Strategy::kHybrid);
  const PlanSetting s = adapters_of_70b();
  const Advice advice = advise(s, trained_layout(s.train), device, device.memory_bytes, strategies);
  ASSERT_TRUE(advice.setting.has_value());
  EXPECT_EQ(advice.setting->train.strategy, Strategy::kHybrid);
}

TEST(Advice, ARampHasASequenceForEachWorkerFromTheBeginning) {
  const GpuModel& device = *find_gpu_model("h100");
  PlanSetting s = setting_of("llama3-70b", 1, 512);
  const auto blocks = model_layout(s.train.model);
  ASSERT_GT(advise(s, blocks, device, device.memory_bytes, kAll).setting->nodes, 1);
  s.train.batch.ramp = {{100, 8}};
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kAll);
  for (const Change& change : advice.changes) {
    EXPECT_THAT(change.change, testing::Not(HasSubstr("nodes: ")));
  }
}

TEST(Advice, NamesOffloadWhereMoreNodesWouldDo) {
  const GpuModel& device = *find_gpu_model("h100");
  PlanSetting s = setting_of("llama3-8b", 1, 8);
  s.workers_per_node = 1;
  const auto blocks = model_layout(s.train.model);
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kAll);
  ASSERT_FALSE(advice.changes.empty());
  EXPECT_THAT(advice.changes[0].change, HasSubstr("nodes: "));
  ASSERT_EQ(advice.instead.size(), 1U);
  EXPECT_THAT(advice.instead[0].change, HasSubstr("workload.train.memory.offload: [optimizer"));
  EXPECT_THAT(advice.instead[0].reason, HasSubstr("host memory "));
}

TEST(Advice, SaysWhenNothingHelps) {
  const GpuModel& device = *find_gpu_model("a10g");
  const PlanSetting s = setting_of("llama3-405b", 1, 8);
  const Advice advice = advise(s, model_layout(s.train.model), device, device.memory_bytes, kAll);
  ASSERT_EQ(advice.changes.size(), 1U);
  EXPECT_THAT(advice.changes[0].change, HasSubstr("more memory"));
  EXPECT_FALSE(advice.setting.has_value());
}

TEST(Advice, LeavesAGoodJobAlone) {
  const GpuModel& device = *find_gpu_model("h200");
  PlanSetting s = setting_of("llama3-8b", 1, 8);
  const auto blocks = model_layout(s.train.model);
  ASSERT_LE(total_of(s), device.memory_bytes * kUsableMemory);
  EXPECT_TRUE(advise(s, blocks, device, device.memory_bytes, kAll).changes.empty());
  s.train.memory.activation_checkpointing = Checkpointing::kFull;
  const Advice advice = advise(s, blocks, device, device.memory_bytes, kAll);
  ASSERT_FALSE(advice.changes.empty());
  EXPECT_EQ(advice.changes[0].change, "workload.train.memory.activation_checkpointing: none");
}

}  // namespace
}  // namespace hpctl
