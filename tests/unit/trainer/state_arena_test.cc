// SPDX-License-Identifier: Apache-2.0
// The arena's bytes, its seal, and what happens when there is no memory.
#include "trainer/state/state_arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/base/fd.h"
#include "common/base/plausible.h"
#include "common/job/job_spec.h"
#include "trainer/arch/registry.h"
#include "trainer/state/position.h"

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ArenaGeometry tiny_geometry() {
  return ArenaGeometry::of(model_layout(*model_preset("tiny")), 9, 1, Mesh(1, 2));
}

UniqueFd memory_file(unsigned flags = MFD_CLOEXEC) { return UniqueFd(memfd_create("test", flags)); }

TEST(StateArena, LiesInTheDescriptorAsDocumented) {
  const ArenaGeometry geometry = tiny_geometry();
  const UniqueFd fd = memory_file();
  {
    auto arena = StateArena::create(fd.get(), geometry);
    ASSERT_TRUE(arena.ok()) << arena.error().message;
    EXPECT_EQ(arena->header().slots[0].step, kUnsealed);
    EXPECT_EQ(arena->header().slots[1].step, kUnsealed);
    *arena->state(1, StateKind::kExpAvg, 2) = 42.0F;
    arena->seal(1, {17, 68, 3}, "notes");
  }
  // A reader that knows only the documented bytes, after the writer is gone.
  struct stat status {};
  ASSERT_EQ(fstat(fd.get(), &status), 0);
  ASSERT_EQ(static_cast<size_t>(status.st_size), geometry.bytes());
  const auto read_u64 = [&](off_t at) {
    uint64_t value = 0;
    EXPECT_EQ(pread(fd.get(), &value, sizeof value, at), 8);
    return value;
  };
  EXPECT_EQ(read_u64(0), kArenaMagic);
  const auto elements = static_cast<off_t>(geometry.shard_elements());
  EXPECT_EQ(read_u64(64), kUnsealed);
  EXPECT_EQ(read_u64(128), 17U);
  EXPECT_EQ(read_u64(136), 68U);
  EXPECT_EQ(read_u64(144), 3U);
  EXPECT_EQ(read_u64(152), 5U);
  std::string notes(5, ' ');
  ASSERT_EQ(pread(fd.get(), notes.data(), 5, 4096 + 65536), 5);
  EXPECT_EQ(notes, "notes");
  const off_t block2 = geometry.block_capacity[0] + geometry.block_capacity[1];
  const off_t at = 4096 + 6 * 65536 + ((3 + 1) * elements + block2) * 4;
  float value = 0;
  ASSERT_EQ(pread(fd.get(), &value, sizeof value, at), 4);
  EXPECT_EQ(value, 42.0F);
}

TEST(StateArena, CopiesOfAnotherRankLieBehindItsOwnAndAreToldApart) {
  ArenaGeometry geometry = tiny_geometry();
  const size_t of_two = geometry.bytes();
  geometry.slots = 4;
  geometry.copies = 2;
  EXPECT_EQ(geometry.bytes(), of_two + 4 * geometry.slot_bytes());
  const UniqueFd fd = memory_file();
  auto arena = StateArena::create(fd.get(), geometry);
  ASSERT_TRUE(arena.ok()) << arena.error().message;
  arena->seal(0, {7, 1, 1});
  arena->seal(3, {5, 1, 1});
  arena->seal(5, {5, 1, 1}, "of another");
  *arena->state(5, StateKind::kParam, 0) = 42.0F;
  const ArenaSeals seals = read_seals(fd.get());
  EXPECT_THAT(seals.own, ElementsAre(Seal{7, 1, 1}, Seal{5, 1, 1}));
  EXPECT_THAT(seals.copies, ElementsAre(Seal{5, 1, 1}));
  EXPECT_EQ(arena->notes(5), "of another");
  EXPECT_EQ(arena->notes(3), "");
  float value = 0;
  const auto at = static_cast<off_t>(4096 + 6 * 65536 + 5 * geometry.slot_bytes());
  ASSERT_EQ(pread(fd.get(), &value, sizeof value, at), 4);
  EXPECT_EQ(value, 42.0F);
}

TEST(StateArena, HowManySlotsAFormerOwnerHadIsTold) {
  const std::vector<Block> blocks = model_layout(*model_preset("tiny"));
  for (const auto& [slots, copies] : {std::pair(2, 0), {3, 0}, {4, 2}}) {
    ArenaGeometry geometry = tiny_geometry();
    geometry.slots = slots;
    geometry.copies = copies;
    geometry.copied_index = copies > 0 ? 0 : -1;
    const UniqueFd fd = memory_file();
    ASSERT_TRUE(StateArena::create(fd.get(), geometry).ok());
    const auto former = StateArena::open_former(fd.get(), blocks, tiny_geometry());
    ASSERT_TRUE(former.ok()) << former.error().message;
    EXPECT_EQ(former->geometry().slots, slots);
    EXPECT_EQ(former->geometry().copies, copies);
  }
}

TEST(StateArena, PartsAreAligned) {
  auto arena = StateArena::create(-1, tiny_geometry());
  ASSERT_TRUE(arena.ok());
  for (const int slot : {0, 1}) {
    for (const StateKind kind : kStateKinds) {
      for (size_t b = 0; b < arena->geometry().block_capacity.size(); ++b) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->state(slot, kind, b)) % 64, 0U);
      }
    }
  }
}

TEST(StateArena, UnsealTakesTheStateBack) {
  auto arena = StateArena::create(-1, tiny_geometry());
  ASSERT_TRUE(arena.ok());
  arena->seal(0, {5, 20, 1});
  EXPECT_EQ(arena->header().slots[0].step, 5U);
  arena->unseal(0);
  EXPECT_EQ(arena->header().slots[0].step, kUnsealed);
  EXPECT_FALSE(arena->seal(0, {6, 20, 1}, std::string(kArenaNotesBytes + 1, 'x')));
  EXPECT_FALSE(arena->is_sealed(0)) << "nobody could go on from it";
  EXPECT_TRUE(arena->seal(0, {6, 20, 1}, std::string(kArenaNotesBytes, 'x')));
}

TEST(StateArena, RoomForNotesIsAsLargeAsAsked) {
  ArenaGeometry geometry = tiny_geometry();
  geometry.notes_bytes = 3 * kArenaNotesBytes;
  const std::string notes(geometry.notes_bytes, 'x');
  const UniqueFd fd = memory_file();
  {
    auto arena = StateArena::create(fd.get(), geometry);
    ASSERT_TRUE(arena.ok()) << arena.error().message;
    *arena->state(0, StateKind::kParam, 0) = 42.0F;
    EXPECT_TRUE(arena->seal(0, {6, 20, 1}, notes));
    EXPECT_TRUE(arena->seal(1, {7, 20, 1}, notes));
  }
  EXPECT_FALSE(StateArena::open(fd.get(), tiny_geometry()).ok()) << "another layout";
  auto arena = StateArena::open(fd.get(), geometry);
  ASSERT_TRUE(arena.ok()) << arena.error().message;
  EXPECT_EQ(arena->notes(0), notes);
  EXPECT_EQ(*arena->state(0, StateKind::kParam, 0), 42.0F);
}

TEST(StateArena, WhatADeadOwnerSealedIsFoundAndGoneOnFrom) {
  const ArenaGeometry geometry = tiny_geometry();
  const UniqueFd fd = memory_file();
  EXPECT_THAT(read_seals(fd.get()).own, IsEmpty()) << "a process that died before it had one";
  {
    auto arena = StateArena::create(fd.get(), geometry);
    ASSERT_TRUE(arena.ok()) << arena.error().message;
    *arena->state(0, StateKind::kParam, 2) = 42.0F;
    arena->seal(0, {17, 5, 3}, "of 17");
    arena->seal(1, {16, 4, 3}, "of 16");
  }
  EXPECT_THAT(read_seals(fd.get()).own, ElementsAre(Seal{17, 5, 3}, Seal{16, 4, 3}));
  EXPECT_EQ(read_seals(fd.get()).part, geometry.shard_index);
  EXPECT_EQ(read_seals(fd.get()).parts, geometry.shard_count);
  EXPECT_EQ(read_seals(fd.get()).copied_part, -1);
  {
    auto arena = StateArena::open(fd.get(), geometry);
    ASSERT_TRUE(arena.ok()) << arena.error().message;
    EXPECT_EQ(*arena->state(0, StateKind::kParam, 2), 42.0F);
    EXPECT_EQ(arena->seal_of(0), (Seal{17, 5, 3}));
    EXPECT_EQ(arena->notes(0), "of 17");
    EXPECT_EQ(arena->notes(1), "of 16");
    arena->unseal(1);  // and it died while it wrote the next state
  }
  EXPECT_THAT(read_seals(fd.get()).own, ElementsAre(Seal{17, 5, 3}));
  const uint64_t made_up = kMaxStep + 1;
  ASSERT_EQ(pwrite(fd.get(), &made_up, sizeof made_up, 64), 8);
  EXPECT_THAT(read_seals(fd.get()).own, IsEmpty());
}

TEST(StateArena, OfAnotherJobShardModelOrSizeIsNotGoneOnFrom) {
  const UniqueFd fd = memory_file();
  const auto refusal = [&](const ArenaGeometry& geometry) -> std::string {
    const auto arena = StateArena::open(fd.get(), geometry);
    if (arena.ok()) return "";
    EXPECT_EQ(arena.error().code, ErrorCode::kDataLoss);
    return arena.error().message;
  };
  const ArenaGeometry geometry = tiny_geometry();
  EXPECT_THAT(refusal(geometry), HasSubstr("another size"));
  ASSERT_TRUE(StateArena::create(fd.get(), geometry).ok());
  EXPECT_EQ(refusal(geometry), "");
  ArenaGeometry other = geometry;
  other.job += 1;
  EXPECT_THAT(refusal(other), HasSubstr("another job"));
  other = geometry;
  other.shard_index += 1;
  EXPECT_THAT(refusal(other), HasSubstr("another sharding"));
  other = geometry;
  other.layout_hash += 1;
  EXPECT_THAT(refusal(other), HasSubstr("another model"));
  other = geometry;
  other.moment_bytes = 2;
  EXPECT_THAT(refusal(other), HasSubstr("another size"));
  other = geometry;
  other.param_bytes = 2;
  EXPECT_THAT(refusal(other), HasSubstr("another size"));
  ASSERT_EQ(pwrite(fd.get(), "damage", 6, 0), 6);
  EXPECT_THAT(refusal(geometry), HasSubstr("another kind"));
}

TEST(StateArena, ReusesADescriptorOfAnotherSize) {
  const UniqueFd fd = memory_file();
  ASSERT_EQ(ftruncate(fd.get(), 1 << 24), 0);
  auto arena = StateArena::create(fd.get(), tiny_geometry());
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->header().slots[0].step, kUnsealed) << "what a former owner left is not trusted";
}

TEST(StateArena, NoMemoryIsAnErrorWithARemedy) {
  const UniqueFd fd = memory_file(MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  const auto arena = StateArena::create(fd.get(), tiny_geometry());
  ASSERT_FALSE(arena.ok());
  EXPECT_THAT(arena.error().message, HasSubstr("cannot reserve"));
  EXPECT_THAT(arena.error().message, HasSubstr("use more workers"));
}

TEST(SlotNotes, SayAllThatTheNextStepsDependOn) {
  SlotNotes notes;
  notes.position = {.step = 17,
                    .sample_cursor = 68,
                    .former_cursor = 64,
                    .skipped = {{4, 8}, {20, 21}},
                    .stability = {.skips = 2, .losses = {7.5, 7.25}, .grad_norms = {1.0, -0.0}},
                    .loss_scale = {.scale = 1 << 20, .good_steps = 3, .hysteresis_left = 1}};
  notes.environment = {{"cpu", "AVX2"}, {"ranks_by_node", "2 2"}};
  notes.inexact_reason = "another world size";
  notes.max_positions = 131072;
  notes.world_size = 3;
  notes.data = {.fingerprint = "1f2e", .tokens = 35'149, .seq_len = 32};
  const std::string bytes = encode(notes);
  const auto read = decode_slot_notes(bytes);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->position, notes.position);
  EXPECT_EQ(read->environment, notes.environment);
  EXPECT_EQ(read->inexact_reason, notes.inexact_reason);
  EXPECT_EQ(read->max_positions, notes.max_positions);
  EXPECT_EQ(read->world_size, notes.world_size);
  EXPECT_EQ(read->data, notes.data);

  const uint64_t digest = digest_of(notes.position);
  Position other = notes.position;
  other.stability.skips = 3;
  EXPECT_NE(digest_of(other), digest);
  other = notes.position;
  other.skipped.pop_back();
  EXPECT_NE(digest_of(other), digest);

  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_slot_notes(bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(decode_slot_notes(bytes + "x").ok());
  // A count of four billion ranges must neither be believed nor allocated.
  std::string huge = bytes;
  huge.replace(3 * sizeof(uint64_t), 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(decode_slot_notes(huge).ok());
}

TEST(StateArena, LayoutHashTellsModelsApart) {
  ModelSpec other = *model_preset("tiny");
  other.ffn += 16;
  EXPECT_NE(ArenaGeometry::of(model_layout(other), 9, 1, Mesh(1, 2)).layout_hash,
            tiny_geometry().layout_hash);
}

}  // namespace
}  // namespace hpctl
