// SPDX-License-Identifier: Apache-2.0
// What sharded training holds and when it moves it: blocks gathered at a time, gathers behind
// computation, and memory that is released.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/trainer/sharded_training.h"
#include "trainer/arch/model.h"
#include "trainer/arch/registry.h"
#include "trainer/parallel/fsdp.h"

namespace hpctl::test {
namespace {

TEST(FullySharded, GathersNoMoreBlocksThanTheStrategyKeeps) {
  EXPECT_EQ(train({.world_size = 2, .micros = 2}).peak_gathered_blocks, 2U);
  EXPECT_EQ(train({.world_size = 2, .micros = 2, .checkpointing = "full"}).peak_gathered_blocks,
            2U);
  EXPECT_EQ(train({.world_size = 4, .strategy = "hybrid", .shard_group = 2}).peak_gathered_blocks,
            2U);
  EXPECT_EQ(train({.world_size = 2, .strategy = "shard_grad_op"}).peak_gathered_blocks, 5U);
}

struct Counts {
  size_t gathers = 0;
  size_t hidden = 0;  // behind the computation of the block before
};

// Reads a trace: is the gather of a block under way while the block before it computes?
Counts read_trace(const ScheduleTrace& trace) {
  Counts counts;
  for (const ScheduleSpan& begun : trace) {
    if (begun.event != ScheduleEvent::kGatherBegun) continue;
    ++counts.gathers;
    const auto gathered = std::find_if(trace.begin(), trace.end(), [&](const ScheduleSpan& span) {
      return span.event == ScheduleEvent::kGathered && span.block == begun.block &&
             span.begin >= begun.end;
    });
    const auto hides = [&](const ScheduleSpan& span) {
      const bool computes =
          span.event == ScheduleEvent::kForward || span.event == ScheduleEvent::kBackward;
      return computes && span.begin >= begun.end && span.end <= gathered->begin;
    };
    if (std::any_of(trace.begin(), trace.end(), hides)) ++counts.hidden;
  }
  return counts;
}

TEST(FullySharded, GathersTheNextBlockWhileOneComputes) {
  // 5 blocks forward, layers 2 and 1 again backward; all but the first hide behind a block.
  Counts counts = read_trace(train({.world_size = 2}).traces[1]);
  EXPECT_EQ(counts.gathers, 7U);
  EXPECT_EQ(counts.hidden, 6U);
  // The second micro-batch's first gather hides behind the first one's last block.
  counts = read_trace(train({.world_size = 2, .micros = 2}).traces[1]);
  EXPECT_EQ(counts.gathers, 14U);
  EXPECT_EQ(counts.hidden, 13U);
  // Kept parameters are gathered once a step, whatever the number of micro-batches.
  for (const char* strategy : {"shard_grad_op", "optimizer"}) {
    counts = read_trace(train({.world_size = 2, .micros = 2, .strategy = strategy}).traces[0]);
    EXPECT_EQ(counts.gathers, 5U) << strategy;
    EXPECT_EQ(counts.hidden, 4U) << strategy;
  }
}

// Nobody writes the five blocks of the model, so steps and evaluations behind the first step gather
// the three of adapters alone, to the same bits.
TEST(FullySharded, WhatIsFrozenIsGatheredOnceWhereParametersAreKept) {
  const Setting in_each_use = {.world_size = 2, .lora_rank = 4, .evaluates = true};
  const Training full = train(in_each_use, 3);
  EXPECT_EQ(full.collectives, std::vector<uint64_t>(3, full.collectives[0]));
  EXPECT_EQ(full.peak_gathered_blocks, 2U);
  for (const char* strategy : {"full", "shard_grad_op", "optimizer"}) {
    Setting s = in_each_use;
    s.strategy = strategy;
    s.reshard = "never";
    const Training kept = train(s, 3);
    ASSERT_EQ(kept.collectives.size(), 3U);
    EXPECT_EQ(kept.collectives[0] - kept.collectives[1], 5U) << strategy;
    EXPECT_EQ(kept.collectives[2], kept.collectives[1]) << strategy;
    EXPECT_EQ(read_trace(kept.traces[0]).gathers, 3U) << strategy;
    EXPECT_EQ(kept.peak_gathered_blocks, 5U) << strategy;
    expect_same_bits(kept, full, name_of(s));
    s.gathers_anew = true;
    const Training anew = train(s, 3);
    EXPECT_EQ(anew.collectives, std::vector<uint64_t>(3, kept.collectives[0])) << strategy;
    expect_same_bits(anew, full, name_of(s));
  }
}

TEST(FullySharded, AdaptersHaveTheSameBitsWhetherTheirBaseIsKeptOrGatheredAnew) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    for (const char* strategy : {"full", "shard_grad_op", "no_shard", "hybrid"}) {
      Setting s = {.micros = 2, .strategy = strategy, .reshard = "never"};
      s.world_size = s.strategy == std::string("hybrid") ? 4 : 2;
      s.shard_group = s.strategy == std::string("hybrid") ? 2 : 0;
      s.compute = compute;
      s.tied = compute == at::kBFloat16;
      s.lora_rank = 4;
      const Training kept = train(s, 3);
      EXPECT_NE(kept.losses[0], kept.losses[2]) << "adapters are trained";
      s.gathers_anew = true;
      expect_same_bits(train(s, 3), kept, name_of(s));
    }
  }
}

// What is looked up is added to by autograd, which reads what is there.
TEST(ShardedBlock, ProductsLeadWhereNothingIsLookedUp) {
  ModelSpec model = model_of({});
  const auto leads = [&](size_t block, bool tied) {
    const Block layout = model_layout(model)[block];
    const std::vector<bool> found = weights_of_products(layout, model, tied);
    std::string names;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i]) names += layout.tensors[i].name.substr(layout.name.size() > 5 ? 15 : 0) + " ";
    }
    return names;
  };
  EXPECT_EQ(leads(0, false), "");
  EXPECT_EQ(leads(0, true), "model.embed_tokens.weight ");
  EXPECT_EQ(leads(1, false),
            "self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight "
            "self_attn.o_proj.weight mlp.gate_proj.weight mlp.up_proj.weight "
            "mlp.down_proj.weight ");
  model = *model_preset("tiny-gpt");
  EXPECT_EQ(leads(0, true), "transformer.wte.weight ") << "positions are looked up";
}

// A product writes where nothing was; the rest begins as zeros, and ends so where nothing came.
TEST(ShardedBlock, UnwrittenGradientIsLeftToProducts) {
  const Block block = model_layout(model_of({}))[1];
  const auto comm = make_communicator({});
  BufferPool parameters(ShardedBlock::gather_bytes(block, 1, at::kFloat), *comm);
  ShardedBlock sharded(block, *comm, at::kFloat, parameters);
  const size_t second = 2;  // weights
  const size_t last = block.tensors.size() - 1;
  std::vector<bool> products(block.tensors.size(), false);
  products[second] = products[last] = true;
  std::vector<float> memory(static_cast<size_t>(sharded.shard_elements()), 7.0F);
  sharded.attach_gradient({memory.data(), true}, products);
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    const float first = memory[static_cast<size_t>(block.tensors[i].offset)];
    EXPECT_EQ(first, products[i] ? 7.0F : 0.0F) << i;
  }
  const at::Tensor written = sharded.parameters()[second].grad();
  EXPECT_TRUE(take_unwritten(written));
  EXPECT_FALSE(take_unwritten(written)) << "once";
  written.fill_(3);
  sharded.detach_gradient();
  EXPECT_FALSE(sharded.parameters()[second].grad().defined());
  double sum = 0;
  for (const float value : memory) sum += value;
  EXPECT_EQ(sum, 3.0 * static_cast<double>(block.tensors[second].numel)) << "all else is 0";

  sharded.attach_gradient({memory.data(), false}, products);
  EXPECT_FALSE(take_unwritten(sharded.parameters()[second].grad())) << "of an earlier micro-batch";
  sharded.detach_gradient();
  EXPECT_EQ(memory[static_cast<size_t>(block.tensors[second].offset)], 3.0F);
}

TEST(ShardedBlock, ReleasedParametersHaveNoMemory) {
  const Block block = model_layout(model_of({}))[1];
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto comm = make_communicator({});
    BufferPool parameters(ShardedBlock::gather_bytes(block, 1, type), *comm);
    ShardedBlock sharded(block, *comm, type, parameters);
    const std::vector<float> shard(sharded.shard_elements(), 2.0F);
    EXPECT_EQ(sharded.parameters()[1].storage().nbytes(), 0U);
    ASSERT_TRUE(sharded.begin_gather({.values = shard.data()}).ok());
    ASSERT_TRUE(sharded.finish_gather().ok());
    EXPECT_EQ(sharded.parameters()[1].sum().item<float>(), 2.0F * 64 * 64);
    EXPECT_EQ(sharded.parameters()[0].data_ptr() == shard.data(), type == at::kFloat)
        << "a shard that is the whole block is used where it lies";
    sharded.release();
    EXPECT_EQ(sharded.parameters()[1].storage().nbytes(), 0U);
  }
}

}  // namespace
}  // namespace hpctl::test
