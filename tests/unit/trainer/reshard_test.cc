// SPDX-License-Identifier: Apache-2.0
// A state in the memory of so many ranks is, bit for bit, the same in the memory of fewer and of
// more, also where copies stand for parts whose ranks are gone.
#include "trainer/state/reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/unit/trainer/comm_world.h"

namespace hpctl {
namespace {

constexpr Seal kSeal{12, 77, 3};

// Blocks whose parts end in the middle of alignment, are empty for some ranks, and fill several
// messages.
std::vector<Block> blocks_of_all_sizes() {
  std::vector<Block> blocks;
  for (const int64_t numel : {int64_t{1000}, int64_t{17}, int64_t{3'000'001}}) {
    Block block;
    block.name = "b" + std::to_string(blocks.size());
    block.tensors.push_back({.name = block.name + ".weight", .shape = {numel}, .numel = numel});
    block.numel = numel;
    blocks.push_back(block);
  }
  return blocks;
}

CutModel uncut(const std::vector<Block>& blocks) {
  CutModel model;
  for (const Block& block : blocks) model.blocks.push_back({block, {CuttingRule()}});
  return model;
}

float value_at(StateKind kind, size_t block, int64_t element) {
  return static_cast<float>(element % 10'007) + 0.25F * static_cast<float>(block) +
         1e5F * static_cast<float>(kind);
}

ArenaGeometry geometry_of(const std::vector<Block>& blocks, int32_t rank, const Mesh& mesh,
                          bool keeps_copies) {
  ArenaGeometry geometry = ArenaGeometry::of(blocks, 1, rank, mesh);
  if (!keeps_copies) return geometry;
  geometry.slots = 4;
  geometry.copies = 2;
  geometry.copied_index = (rank + geometry.shard_count - 1) % geometry.shard_count;
  return geometry;
}

// Slot `slot` has that part of the state; others are as they were.
void fill(StateArena& arena, int slot, const std::vector<Block>& blocks, int32_t part) {
  for (size_t b = 0; b < blocks.size(); ++b) {
    const ElementRange range = shard_range(blocks[b].numel, part, arena.geometry().shard_count);
    for (const StateKind kind : kStateKinds) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        arena.state(slot, kind, b)[i - range.begin] = value_at(kind, b, i);
      }
    }
  }
  arena.seal(slot, kSeal, "notes");
}

void expect_whole(StateArena& arena, const std::vector<Block>& blocks) {
  const ArenaGeometry& geometry = arena.geometry();
  int64_t wrong = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const ElementRange range =
        shard_range(blocks[b].numel, geometry.shard_index, geometry.shard_count);
    for (const StateKind kind : kStateKinds) {
      const float* values = arena.state(0, kind, b);
      for (int64_t i = 0; i < geometry.block_capacity[b]; ++i) {
        const float expected = i < range.size() ? value_at(kind, b, range.begin + i) : 0.0F;
        wrong += values[i] == expected ? 0 : 1;
      }
    }
  }
  EXPECT_EQ(wrong, 0) << "shard " << geometry.shard_index;
}

struct Case {
  int32_t former_parts;
  Mesh mesh;                 // of the ranks to come
  std::vector<int32_t> has;  // by rank: the former part of its place; -1 = nothing
  bool copies = false;       // and each keeps that of the one before it
};

std::string run(const Case& c) {
  std::string problem;
  const std::vector<Block> blocks = blocks_of_all_sizes();
  test::on_every_rank(static_cast<int>(c.has.size()), [&](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& world) {
      const int32_t part = c.has[static_cast<size_t>(options.rank)];
      std::optional<StateArena> former;
      if (part >= 0) {
        const Mesh before(1, c.former_parts);
        former.emplace(StateArena::create(-1, geometry_of(blocks, part, before, c.copies)).value());
        fill(*former, 1, blocks, part);
        former->seal(0, {11, 5, 3}, "older");
        if (c.copies) fill(*former, 5, blocks, former->geometry().copied_index);
      }
      auto made = reshard(world, former ? &*former : nullptr, Mesh(1, c.former_parts), kSeal.step,
                          uncut(blocks), c.mesh, geometry_of(blocks, options.rank, c.mesh, false));
      if (!made.ok()) {
        EXPECT_EQ(made.error().code, ErrorCode::kDataLoss);
        if (options.rank == 0) problem = made.error().message;
        return;
      }
      EXPECT_EQ(made->seal, kSeal);
      EXPECT_EQ(made->notes, "notes");
      expect_whole(made->arena, blocks);
    });
  });
  return problem;
}

TEST(Reshard, PartsBecomeFewerAndMoreAndStayTheSameBits) {
  EXPECT_EQ(run({4, Mesh(1, 3), {0, 1, 2}, true}), "") << "part 3 is at rank 0 as a copy";
  EXPECT_EQ(run({2, Mesh(1, 3), {0, 1, -1}}), "") << "a rank has come";
  EXPECT_EQ(run({2, Mesh(1, 3), {-1, 1, 0}}), "") << "places are in any order";
  EXPECT_EQ(run({2, Mesh(1, 1), {1}, true}), "") << "one has all of it";
  EXPECT_EQ(run({3, Mesh(2, 2), {0, 1, 2, -1}}), "") << "parts become those of two replicas";
  EXPECT_EQ(run({3, Mesh(1, 3), {1, 2, 0}}), "") << "as many, elsewhere";
}

TEST(Reshard, AStateThatIsNotWholeIsNotGoneOnFrom) {
  EXPECT_THAT(run({4, Mesh(1, 3), {0, 1, 2}}),
              ::testing::HasSubstr("step 12 is not whole in the ranks' memory"));
}

}  // namespace
}  // namespace hpctl
