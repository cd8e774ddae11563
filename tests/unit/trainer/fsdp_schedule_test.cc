// SPDX-License-Identifier: Apache-2.0
// What sharded training holds and when it moves it: blocks gathered at a time, gathers behind
// computation, and memory that is released.
#include <gtest/gtest.h>

#include <algorithm>
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
