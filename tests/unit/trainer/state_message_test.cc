// SPDX-License-Identifier: Apache-2.0
// A sealed state comes to another rank's arena whole, or not at all.
#include "trainer/state/state_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "tests/unit/trainer/comm_world.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

constexpr int kOwn = 1;
constexpr int kCopy = 3;

ArenaGeometry geometry_of(int32_t rank, int32_t ranks) {
  ArenaGeometry geometry =
      ArenaGeometry::of(model_layout(*model_preset("tiny")), 9, rank, Mesh(1, ranks));
  geometry.slots = 3;
  geometry.copies = 2;
  return geometry;
}

std::byte pattern(int32_t rank, size_t i) {
  return static_cast<std::byte>(static_cast<size_t>(rank) * 31 + i * 7 + i / 251);
}

bool has_state_of(StateArena& arena, int slot, int32_t rank) {
  const auto bytes = arena.slot_bytes(slot);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern(rank, i)) return false;
  }
  return true;
}

StateArena arena_of(int32_t rank, int32_t ranks) {
  auto arena = StateArena::create(-1, geometry_of(rank, ranks));
  HP_CHECK(arena.ok());
  const auto bytes = arena->slot_bytes(kOwn);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(rank, i);
  arena->seal(kOwn, {17, 5, 2}, "notes of " + std::to_string(rank));
  return std::move(arena).value();
}

// Each sends to the next one.
void pass_on(int32_t ranks, const std::function<void(StateArena&, int32_t before)>& check) {
  test::on_every_rank(ranks, [&](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& ring) {
      StateArena arena = arena_of(options.rank, ranks);
      const int before = (options.rank + ranks - 1) % ranks;
      const auto intact =
          exchange_states(ring, arena, (options.rank + 1) % ranks, kOwn, before, kCopy);
      ASSERT_TRUE(intact.ok()) << intact.error().message;
      EXPECT_TRUE(*intact);
      check(arena, before);
    });
  });
}

TEST(StateMessage, EachRankHasTheStateOfTheOneBefore) {
  for (const int32_t ranks : {2, 3}) {
    pass_on(ranks, [](StateArena& arena, int32_t before) {
      EXPECT_EQ(arena.seal_of(kCopy), (Seal{17, 5, 2}));
      EXPECT_EQ(arena.notes(kCopy), "notes of " + std::to_string(before));
      EXPECT_TRUE(has_state_of(arena, kCopy, before));
    });
  }
}

TEST(StateMessage, OneThatHasNothingGetsItsOwnBack) {
  test::on_every_rank(3, [](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& ring) {
      // Rank 2 keeps the copy of rank 1; rank 0 has no part in it but makes the call.
      StateArena arena = arena_of(options.rank == 2 ? 1 : options.rank, 3);
      const int from = options.rank == 2 ? kOwn : kNoSlot;
      const int into = options.rank == 1 ? 0 : kNoSlot;
      const auto intact = exchange_states(ring, arena, 1, from, 2, into);
      ASSERT_TRUE(intact.ok()) << intact.error().message;
      EXPECT_TRUE(*intact);
      if (options.rank == 1) {
        EXPECT_TRUE(has_state_of(arena, 0, 1));
        EXPECT_EQ(arena.notes(0), "notes of 1");
      }
    });
  });
}

// The network, or the memory of the sender's card: one bit of the message of that number.
class Damaging final : public Communicator {
 public:
  Damaging(const CommunicatorOptions& options, Communicator& real, int which)
      : Communicator(options), real_(real), which_(which) {}
  Outcome connect() override { return Ok{}; }
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk) override {
    return real_.begin_all_gather(buffer, chunk);
  }
  Result<CollectivePtr> begin_sums(NumberType type, const void* in, size_t n, void* out) override {
    return real_.begin_sums(type, in, n, out);
  }
  Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing, int from,
                                       std::span<std::byte> incoming) override {
    HP_TRY_ASSIGN(CollectivePtr begun, real_.begin_exchange(to, outgoing, from, incoming));
    const bool hit = number_++ == which_;
    return CollectivePtr(std::make_unique<Hit>(
        std::move(begun), hit ? incoming.subspan(incoming.size() / 2) : std::span<std::byte>()));
  }
  void abort() override { real_.abort(); }

 private:
  struct Hit final : Collective {
    Hit(CollectivePtr of, std::span<std::byte> at) : real(std::move(of)), bytes(at) {}
    Outcome wait() override {
      HP_TRY(real->wait());
      if (!bytes.empty()) bytes[0] ^= std::byte{4};
      return Ok{};
    }
    CollectivePtr real;
    std::span<std::byte> bytes;
  };

  Communicator& real_;
  int which_;
  int number_ = 0;
};

TEST(StateMessage, WhatArrivesDamagedIsNotSealed) {
  constexpr int kMessages = 3;  // seal and notes, the only piece, checksums
  for (int hit = 0; hit <= kMessages; ++hit) {
    test::on_every_rank(2, [hit](const CommunicatorOptions& options) {
      const auto comm = make_communicator(options);
      test::take_part(*comm, [&](Communicator& real) {
        StateArena arena = arena_of(options.rank, 2);
        Damaging ring(options, real, options.rank == 0 ? hit : kMessages);
        const auto intact =
            exchange_states(ring, arena, 1 - options.rank, kOwn, 1 - options.rank, kCopy);
        ASSERT_TRUE(intact.ok()) << intact.error().message;
        const bool is_hit = options.rank == 0 && hit < kMessages;
        EXPECT_EQ(*intact, !is_hit) << "message " << hit;
        EXPECT_EQ(arena.is_sealed(kCopy), !is_hit) << "message " << hit;
      });
    });
  }
}

}  // namespace
}  // namespace hpctl
