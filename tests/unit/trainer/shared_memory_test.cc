// SPDX-License-Identifier: Apache-2.0
// What ranks of one node share, how they meet there, and who is told that it is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <future>
#include <latch>
#include <set>

#include "common/base/file.h"
#include "tests/unit/trainer/comm_world.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/rendezvous_communicator.h"
#include "trainer/comm/shared_segment.h"

namespace hpctl {
namespace {

using test::segments_of;
using ::testing::HasSubstr;
using Clock = SharedSegment::Clock;

constexpr std::chrono::seconds kLong{60};

TEST(SharedSegment, APieceIsReadByEachOfItsReadersAndFreesItsSlotThen) {
  std::vector<SharedSegment> ranks = segments_of(3);
  std::byte* const slot = ranks[0].free_slot();
  slot[0] = std::byte{42};
  ranks[0].publish(slot, 1, 7, only_rank(1) | only_rank(2));
  EXPECT_NE(ranks[0].free_slot(), slot);
  for (const int reader : {1, 2}) {
    EXPECT_EQ(ranks[0].readers() & only_rank(reader), only_rank(reader));
    const auto piece = ranks[reader].front(0);
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->bytes, 1U);
    EXPECT_EQ(piece->collective, 7U);
    EXPECT_EQ(*piece->data, std::byte{42});
    ranks[reader].pop(0);
    EXPECT_FALSE(ranks[reader].front(0));
  }
  EXPECT_EQ(ranks[0].readers(), 0U);
  EXPECT_EQ(ranks[0].free_slot(), slot) << "the lowest is used first";
}

TEST(SharedSegment, WhatIsNotReadFillsTheSlotsAndNoQueue) {
  std::vector<SharedSegment> ranks = segments_of(2);
  for (uint64_t round = 0; round < 3; ++round) {
    uint64_t published = 0;
    while (std::byte* slot = ranks[0].free_slot()) {
      ranks[0].publish(slot, 8, ++published, only_rank(1));
    }
    EXPECT_EQ(published, SharedSegment::kSlots);
    for (uint64_t n = 1; n <= published; ++n) {
      ASSERT_EQ(ranks[1].front(0)->collective, n);
      ranks[1].pop(0);
    }
  }
}

TEST(SharedSegment, AWaiterIsWokenByAPieceByAFreeSlotAndByItsOwnProcess) {
  std::vector<SharedSegment> ranks = segments_of(2);
  const auto waiting = [&](int rank, RankSet wanted) {
    const uint32_t heard = ranks[rank].bell();
    return std::async(std::launch::async, [&, rank, heard, wanted] {
      const auto end = Clock::now() + kLong;
      while (ranks[rank].bell() == heard && Clock::now() < end) {
        ranks[rank].wait(heard, wanted, end);
      }
      return ranks[rank].bell() != heard;
    });
  };
  auto reader = waiting(1, only_rank(0));
  ranks[0].publish(ranks[0].free_slot(), 8, 1, only_rank(1));
  EXPECT_TRUE(reader.get());
  auto sender = waiting(0, SharedSegment::kForSlot);
  ranks[1].pop(0);
  EXPECT_TRUE(sender.get());
  auto anybody = waiting(0, 0);
  ranks[0].wake();
  EXPECT_TRUE(anybody.get());
}

TEST(SharedSegment, AWaitEndsAtItsDeadline) {
  std::vector<SharedSegment> ranks = segments_of(2);
  const auto deadline = Clock::now() + std::chrono::milliseconds(20);
  while (Clock::now() < deadline) ranks[0].wait(ranks[0].bell(), only_rank(1), deadline);
  EXPECT_LT(Clock::now(), deadline + kLong);
}

// A process of ours that is none of the ranks.
UniqueFd connect_stranger(const std::string& address) {
  UniqueFd stranger(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  address.copy(at.sun_path + 1, sizeof at.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  EXPECT_EQ(::connect(stranger.get(), reinterpret_cast<const sockaddr*>(&at), size), 0);
  return stranger;
}

TEST(NodePeers, WhoIsNoRankIsNotCounted) {
  std::array peers = {NodePeers::listen().value(), NodePeers::listen().value()};
  const std::vector<std::string> addresses = {peers[0]->address(), peers[1]->address()};
  std::vector<UniqueFd> strangers;
  for (const std::string said : {"", "0", "2", "no rank"}) {
    strangers.push_back(connect_stranger(addresses[0]));
    if (said.empty()) {
      strangers.pop_back();
    } else {
      ASSERT_GT(::send(strangers.back().get(), said.data(), said.size(), 0), 0);
    }
  }
  auto first = std::async(std::launch::async, [&] {
    return peers[0]->meet(0, addresses, SharedSegment::create(2).value(), Clock::now() + kLong);
  });
  const auto file = peers[1]->meet(1, addresses, UniqueFd(), Clock::now() + kLong);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(SharedSegment::map(*file, 2).ok());
  ASSERT_TRUE(first.get().ok());
}

TEST(NodePeers, OneThatGoesIsLostToTheOthers) {
  std::array peers = {NodePeers::listen().value(), NodePeers::listen().value()};
  const std::vector<std::string> addresses = {peers[0]->address(), peers[1]->address()};
  auto first = std::async(std::launch::async, [&] {
    return peers[0]->meet(0, addresses, SharedSegment::create(2).value(), Clock::now() + kLong);
  });
  ASSERT_TRUE(peers[1]->meet(1, addresses, UniqueFd(), Clock::now() + kLong).ok());
  ASSERT_TRUE(first.get().ok());
  std::promise<void> told;
  ASSERT_TRUE(peers[0]->watch([&] { told.set_value(); }).ok());
  EXPECT_EQ(peers[0]->lost(), 0U);
  peers[1].reset();
  ASSERT_EQ(told.get_future().wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(peers[0]->lost(), only_rank(1));
}

// What carries the collectives of a world whose ranks are on these nodes, as each of them says; all
// can gather.
std::set<Carrier> carriers(const std::vector<std::string>& nodes) {
  std::vector<std::promise<Carrier>> answers(nodes.size());
  test::on_every_rank(static_cast<int>(nodes.size()), [&](const CommunicatorOptions& options) {
    RendezvousCommunicator comm(options, nodes[options.rank]);
    test::take_part(comm, [](Communicator& of_node) {
      double value = 1;
      ASSERT_TRUE(of_node.all_reduce({&value, 1}).ok());
      EXPECT_EQ(value, of_node.world_size());
    });
    answers[options.rank].set_value(comm.carrier());
  });
  std::set<Carrier> all;
  for (std::promise<Carrier>& answer : answers) all.insert(answer.get_future().get());
  return all;
}

TEST(Rendezvous, AllFindTheSameCarrier) {
  using ::testing::ElementsAre;
  EXPECT_THAT(carriers({"a", "a", "a"}), ElementsAre(Carrier::kSharedMemory));
  EXPECT_THAT(carriers({"a", "a", "b", "b"}), ElementsAre(Carrier::kHierarchical));
  EXPECT_THAT(carriers({"b", "b", "b", "a", "a", "a"}), ElementsAre(Carrier::kHierarchical));
  EXPECT_THAT(carriers({"a", "b"}), ElementsAre(Carrier::kGloo));
  EXPECT_THAT(carriers({"a", "a", "b"}), ElementsAre(Carrier::kGloo));
  EXPECT_THAT(carriers({"a", "a", "a", "b"}), ElementsAre(Carrier::kGloo));
  EXPECT_THAT(carriers({"a", "b", "a", "b"}), ElementsAre(Carrier::kGloo));
  EXPECT_THAT(carriers({"a", "a", "b", "b", "a", "a"}), ElementsAre(Carrier::kGloo));
  EXPECT_THAT(carriers({"a", "", "a"}), ElementsAre(Carrier::kGloo));
  EXPECT_THAT(carriers({"", ""}), ElementsAre(Carrier::kGloo));
}

TEST(SharedMemory, WhatARankSentBeforeItWentArrives) {
  std::latch gone(1);
  test::on_every_rank(3, [&](const CommunicatorOptions& options) {
    auto comm = test::carried_by(Carrier::kSharedMemory, options);
    ASSERT_TRUE(comm->connect().ok());
    std::vector<int> buffer(3, -1);
    buffer[options.rank] = options.rank;
    CollectivePtr gather = comm->begin_all_gather(buffer.data(), sizeof(int)).value();
    if (options.rank == 0) {
      ASSERT_TRUE(gather->wait().ok());
      gather.reset();
      comm.reset();
      gone.count_down();
      return;
    }
    gone.wait();
    ASSERT_TRUE(gather->wait().ok());
    EXPECT_THAT(buffer, ::testing::ElementsAre(0, 1, 2));
    // Both are told of the first one's end: what it had to say is said.
    const Outcome next = comm->barrier();
    ASSERT_FALSE(next.ok());
    EXPECT_EQ(next.error().code, kPeerLost);
    EXPECT_THAT(next.error().message, HasSubstr("connection to rank 0"));
  });
}

TEST(SharedMemory, RanksThatDoNotDoTheSameAreToldSo) {
  test::on_every_rank(2, [](const CommunicatorOptions& options) {
    auto comm = test::carried_by(Carrier::kSharedMemory, options);
    ASSERT_TRUE(comm->connect().ok());
    std::vector<char> buffer(100);
    const Outcome outcome = comm->all_gather(buffer.data(), options.rank == 0 ? 8 : 16);
    ASSERT_FALSE(outcome.ok());
    EXPECT_THAT(outcome.error().message, HasSubstr("of another size"));
  });
}

}  // namespace
}  // namespace hpctl
