// SPDX-License-Identifier: Apache-2.0
// A part of the state reaches the replicas that lack it, whole, whoever has it.
#include "trainer/state/replicas.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/unit/trainer/comm_world.h"

namespace hpctl {
namespace {

TEST(Replicas, AGroupKnowsItsHoldersAndTheFewestOfAnyGroup) {
  const Mesh mesh(3, 2);  // groups {0, 2, 4} and {1, 3, 5}
  const ReplicaGroup group = replica_group(mesh, 3, {0, 1, 2});
  EXPECT_EQ(group.has, std::vector<bool>({false, true, true}));
  EXPECT_EQ(group.holders, 2);
  EXPECT_EQ(group.fewest, 1);
  EXPECT_EQ(replica_group(mesh, 4, {0, 1, 2}).holders, 1);
}

std::vector<std::byte> state_of(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

// Four replicas of the only part.
void expect_spread(const std::vector<int32_t>& refilled, size_t size) {
  test::on_every_rank(4, [&](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
    test::take_part(*comm, [&](Communicator& replicas) {
      const ReplicaGroup group = replica_group(Mesh(4, 1), options.rank, refilled);
      const bool has = group.has[static_cast<size_t>(options.rank)];
      std::vector<std::byte> part = has ? state_of(size) : std::vector<std::byte>(size);
      ASSERT_TRUE(spread(replicas, group, part).ok());
      EXPECT_EQ(part, state_of(size)) << "rank " << options.rank;
    });
  });
}

TEST(Replicas, WhoeverLacksAPartGetsAllOfIt) {
  constexpr size_t kSeveralRounds = (size_t{9} << 20) + 5;
  expect_spread({3}, kSeveralRounds);
  expect_spread({0, 1, 3}, kSeveralRounds);
  expect_spread({1, 2}, 64);
  expect_spread({0}, 2);  // less than one byte of each holder
}

// What is begun is compared between ranks when something hangs.
TEST(Replicas, GroupsThatLackNothingMakeAsManyCollectives) {
  constexpr size_t kSize = size_t{20} << 20;
  std::vector<uint64_t> begun(4);
  test::on_every_rank(2, [&](const CommunicatorOptions& options) {
    for (int32_t shard = 0; shard < 2; ++shard) {
      CommunicatorOptions of_group = options;
      std::atomic<uint64_t> count{0};
      of_group.rendezvous_dir += std::to_string(shard);
      of_group.sequence = &count;
      const auto comm = make_communicator(of_group);
      test::take_part(*comm, [&](Communicator& replicas) {
        const int32_t rank = 2 * options.rank + shard;
        const ReplicaGroup group = replica_group(Mesh(2, 2), rank, {3});
        std::vector<std::byte> part(kSize);
        ASSERT_TRUE(spread(replicas, group, part).ok());
        begun[static_cast<size_t>(rank)] = count;
      });
    }
  });
  EXPECT_EQ(begun, std::vector<uint64_t>(4, begun[0]));
  EXPECT_GE(begun[0], kSize / (size_t{4} << 20));
}

}  // namespace
}  // namespace hpctl
