// SPDX-License-Identifier: Apache-2.0
// The plan of memory against known figures. Against real workers: worker_test.cc.
#include "trainer/plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/layout/memory_savings.h"
#include "common/layout/sharding.h"
#include "tests/unit/trainer/planned_job.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"
#include "trainer/plan/fit.h"
#include "trainer/plan/speed_plan.h"

namespace hpctl {
namespace {

using test::kGiB;
using test::kStrategies;
using test::planned_job;
using test::total_of;
using testing::HasSubstr;

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
  PlanSetting one = planned_job("llama3-8b", 1, 8);
  one.workers_per_node = 1;
  one.train.strategy = Strategy::kNoShard;
  auto parts = parts_of(one);
  EXPECT_NEAR((parts["parameters"] + parts["moments"] + parts["gradients"]) / kGiB, 119.7, 0.05);
  EXPECT_NEAR(parts["rounded weights"] / kGiB, 119.7 / 8, 0.05) << "used where they lie";
  EXPECT_FALSE(parts.contains("gathered blocks"));
  const double parameters = parts["parameters"];
  parts = parts_of(planned_job("llama3-8b", 4, 32));
  EXPECT_NEAR(parts["parameters"] / (parameters / 32), 1, 1e-4);
  one.train.optimizer.moments = StateType::kBf16;
  EXPECT_EQ(parts_of(one)["moments"], parameters);
  one.train.optimizer.master = StateType::kBf16;
  parts = parts_of(one);
  EXPECT_EQ(parts["parameters"], parameters / 2);
  EXPECT_FALSE(parts.contains("rounded weights"));
  EXPECT_FALSE(parts.contains("gathered blocks")) << "what is computed with is the state";
}

// Where a step gathers a block more than once. Of what is gathered once nothing is kept besides.
TEST(MemoryPlan, RoundedWeightsAreKeptWhereGathersRepeat) {
  PlanSetting s = planned_job("llama3-8b", 1, 8);
  auto parts = parts_of(s);
  EXPECT_EQ(parts["rounded weights"], parts["parameters"] / 2);
  s.train.strategy = Strategy::kShardGradOp;
  EXPECT_FALSE(parts_of(s).contains("rounded weights"));
  s.train.strategy = Strategy::kFull;
  s.train.precision = Precision::kFp32;
  EXPECT_FALSE(parts_of(s).contains("rounded weights"));
  s.train.precision = Precision::kBf16;
  s.gpu = false;
  EXPECT_FALSE(parts_of(s).contains("rounded weights"));
}

// As sharding_of() has it: micro-batches of one worker are added up in place.
TEST(MemoryPlan, OneWorkerHasNoBuffersOfGradients) {
  PlanSetting one = planned_job("llama3-8b", 1, 8);
  one.workers_per_node = 1;
  one.train.strategy = Strategy::kFull;
  EXPECT_TRUE(sharding_of(one.train, 1)->whole_gradients);
  auto parts = parts_of(one);
  EXPECT_FALSE(parts.contains("gradient buffers"));
  one.train.strategy = Strategy::kNoShard;
  EXPECT_EQ(parts["gradients"], parts_of(one)["gradients"]);
}

// With state in bf16 a parameter takes 10 bytes, of which 4 are its gradient. A plan may have 90 %
// of the card.
TEST(MemoryPlan, SevenBillionParametersFitOneGpuOf80GB) {
  PlanSetting s = planned_job("qwen2.5-7b", 1, 512);
  s.workers_per_node = 1;
  s.train.data.seq_len = 1024;
  s.train.batch.micro = 2;
  s.train.strategy = Strategy::kNoShard;
  s.train.memory.activation_checkpointing = Checkpointing::kFull;
  s.train.optimizer.moments = StateType::kBf16;
  EXPECT_GT(total_of(s), 80 * kGiB);
  s.train.optimizer.master = StateType::kBf16;
  EXPECT_LT(total_of(s), 0.9 * 80 * kGiB);
}

// What is trained has gradients and moments; the rest is there once, in the type of computation.
TEST(MemoryPlan, OfAFrozenModelNothingIsKeptButItself) {
  PlanSetting whole = planned_job("llama3-8b", 1, 8);
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
  PlanSetting s = planned_job("llama3-8b", 2, 16);
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
  PlanSetting s = planned_job("llama3-8b", 1, 8);
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
  PlanSetting windowed = planned_job("llama3-8b", 1, 8);
  windowed.train.model.sliding_window = 4096;
  EXPECT_FALSE(parts_of(windowed).contains("attention mask"));
  windowed.train.model.head_dim = 124;
  EXPECT_EQ(parts_of(windowed)["attention mask"], 4 * pairs);
  windowed.train.model.sliding_window = 8192;
  EXPECT_FALSE(parts_of(windowed).contains("attention mask")) << "none";
}

TEST(MemoryPlan, ProductsThatTheJobAsksForKeepTheirWeights) {
  PlanSetting s = planned_job("llama3-8b", 1, 8);
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
  PlanSetting s = planned_job("llama3-8b", 1, 8);
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

// The loss takes them as they are (trainer/arch/fused_ops.h), but a CPU's those of fp16 in fp32;
// their gradient is written over them.
TEST(MemoryPlan, LogitsAreAsNarrowAsTheModel) {
  PlanSetting s = planned_job("llama3-8b", 1, 8);
  const double logits = 8192.0 * 128256;
  EXPECT_EQ(parts_of(s)["logits"], logits * 2);
  s.train.precision = Precision::kFp32;
  s.train.data.seq_len = 64;  // else attention in fp32 takes more
  EXPECT_EQ(parts_of(s)["logits"], 64.0 * 128256 * 4);
  s = planned_job("llama3-8b", 1, 8);
  s.gpu = false;
  EXPECT_EQ(parts_of(s)["logits"], logits * 2);
  s.train.precision = Precision::kFp16;
  EXPECT_EQ(parts_of(s)["logits"], logits * (2 + 4))
      << "a copy in fp32, which their gradient replaces";
}

TEST(MemoryPlan, EachStrategyKeepsWhatItSays) {
  std::map<std::string, double> total;
  for (const Strategy strategy : kStrategies) {
    PlanSetting s = planned_job("llama3-8b", 1, 8);
    s.train.strategy = strategy;
    total[to_word(strategy)] = plan_memory(s, model_layout(s.train.model)).total();
  }
  EXPECT_LT(total["full"], total["shard_grad_op"]);
  EXPECT_LT(total["shard_grad_op"], total["optimizer"]);
  EXPECT_LT(total["optimizer"], total["no_shard"]);
  PlanSetting s = planned_job("llama3-8b", 1, 8);
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

// 8 bytes of moments and 4 of parameters less per parameter of the shard, more of host memory.
TEST(MemoryPlan, OffloadMovesTheStateToTheHost) {
  PlanSetting s = planned_job("llama3-8b", 1, 8);
  const auto blocks = model_layout(s.train.model);
  const double parameters = static_cast<double>(parameter_count(blocks)) / 8;
  const double without = plan_memory(s, blocks).total();
  s.train.memory.offload = {Offload::kOptimizer};
  const MemoryPlan plan = plan_memory(s, blocks);
  const double pieces = 2.0 * kOffloadPiece * 12;
  EXPECT_NEAR((without - plan.total() + pieces) / (12 * parameters), 1, 1e-3);
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

// Three slots of copies of a GPU's state, and as much again where a peer keeps copies of them. None
// of it is on the GPU, and none is needed: without room the job trains all the same.
TEST(MemoryPlan, CopiesOfAGpusStateAreInHostMemory) {
  PlanSetting s = planned_job("llama3-8b", 1, 8);
  const auto blocks = model_layout(s.train.model);
  const double slot = 12 * static_cast<double>(parameter_count(blocks)) / 8;
  const MemoryPlan one_node = plan_memory(s, blocks);
  ASSERT_EQ(one_node.host.size(), 1U);
  EXPECT_EQ(one_node.host[0].name, std::string(kHostCopiesPart));
  EXPECT_NEAR(one_node.host[0].bytes / (3 * slot), 1, 1e-3);
  s.nodes = 2;
  const MemoryPlan two_nodes = plan_memory(s, blocks);
  ASSERT_EQ(two_nodes.host.size(), 2U);
  EXPECT_EQ(two_nodes.host[1].name, std::string(kPeerSnapshotsPart));
  EXPECT_NEAR(two_nodes.host[1].bytes / (3 * slot / 2), 1, 1e-3);
  EXPECT_TRUE(check_host_fit(one_node, 8, 8 * 3 * slot / 0.79).ok());
  const Outcome too_much = check_host_fit(one_node, 8, 8 * 3 * slot / 0.81);
  ASSERT_FALSE(too_much.ok());
  EXPECT_THAT(too_much.error().message, HasSubstr("8 workers need"));
  s.snapshots = false;
  EXPECT_EQ(plan_memory(s, blocks).host.size(), 1U);
}

TEST(MemoryPlan, TheMostIsOnTheFewestNodesOrOnTwo) {
  const auto most_of = [](const PlanSetting& s) {
    return most_memory(s, model_layout(s.train.model));
  };
  PlanSetting s = planned_job("llama3-8b", 4, 512);
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

}  // namespace
}  // namespace hpctl
