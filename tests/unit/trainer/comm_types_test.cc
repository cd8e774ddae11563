// SPDX-License-Identifier: Apache-2.0
// Sums of each type, several of them under way at once, and messages from all ranks to all, over
// everything that carries them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/trainer/comm_world.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/ordered_sum.h"
#include "trainer/comm/siblings.h"
#include "trainer/kernels/bf16.h"

namespace hpctl {
namespace {

using test::carried_by;
using ::testing::HasSubstr;

// Neighbours first: the order of trainer/comm/ordered_sum.h.
template <typename Number>
Number added_in_pairs(std::vector<Number> numbers) {
  while (numbers.size() > 1) {
    std::vector<Number> pairs;
    for (size_t i = 0; i < numbers.size(); i += 2) {
      pairs.push_back(i + 1 < numbers.size() ? numbers[i] + numbers[i + 1] : numbers[i]);
    }
    numbers = pairs;
  }
  return numbers.front();
}

// The numbers of each rank, over and over, and their sums, as they are stored.
template <typename Stored>
struct SummedPeriods {
  std::vector<std::vector<Stored>> of_ranks;
  std::vector<Stored> sums;
};

constexpr size_t kSummedPeriod = 101;  // a prime

template <typename Number>
std::vector<Number> random_period(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 17);
  std::vector<Number> period(kSummedPeriod);
  for (Number& x : period) x = static_cast<Number>(random() % 2'000'003) / 997 - 1000;
  return period;
}

template <typename Number>
SummedPeriods<Number> periods_of(int ranks) {
  SummedPeriods<Number> made;
  for (int rank = 0; rank < ranks; ++rank) made.of_ranks.push_back(random_period<Number>(rank));
  for (size_t i = 0; i < kSummedPeriod; ++i) {
    std::vector<Number> numbers;
    for (const auto& period : made.of_ranks) numbers.push_back(period[i]);
    made.sums.push_back(added_in_pairs(numbers));
  }
  return made;
}

SummedPeriods<uint16_t> bf16_periods_of(int ranks) {
  SummedPeriods<uint16_t> made;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<uint16_t>& period = made.of_ranks.emplace_back();
    for (const float x : random_period<float>(rank)) period.push_back(bf16_of(x));
  }
  for (size_t i = 0; i < kSummedPeriod; ++i) {
    std::vector<float> numbers;
    for (const auto& period : made.of_ranks) numbers.push_back(float_of_bf16(period[i]));
    made.sums.push_back(bf16_of(added_in_pairs(numbers)));
  }
  return made;
}

std::string name_of_sums(const ::testing::TestParamInfo<std::tuple<Carrier, int>>& tested) {
  return test::name_of(std::get<0>(tested.param)) + std::to_string(std::get<1>(tested.param));
}

class TypedSums : public ::testing::TestWithParam<std::tuple<Carrier, int>> {
 protected:
  static Carrier carrier() { return std::get<0>(GetParam()); }
  static int ranks() { return std::get<1>(GetParam()); }
  static void with_ranks(const std::function<void(Communicator&)>& body) {
    test::on_every_rank(ranks(), [&](const CommunicatorOptions& options) {
      test::take_part(*carried_by(carrier(), options), body);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(
    Sizes, TypedSums,
    ::testing::Values(std::tuple(Carrier::kSharedMemory, 1), std::tuple(Carrier::kSharedMemory, 2),
                      std::tuple(Carrier::kSharedMemory, 3), std::tuple(Carrier::kGloo, 2),
                      std::tuple(Carrier::kGloo, 3), std::tuple(Carrier::kHierarchical, 4),
                      std::tuple(Carrier::kHierarchical, 6)),
    name_of_sums);

// Also in the place of this rank's own numbers.
template <typename Stored>
void expect_sums(Communicator& comm, NumberType type, const SummedPeriods<Stored>& periods) {
  const auto n = static_cast<size_t>(comm.world_size());
  const auto rank = static_cast<size_t>(comm.rank());
  for (const size_t chunk : {1UL, 4097UL, 300'000UL}) {
    std::vector<Stored> input(chunk * n);
    test::repeat<Stored>(periods.of_ranks[rank], 0, input);
    std::vector<Stored> elsewhere(chunk);
    const std::span<Stored> own = std::span(input).subspan(rank * chunk, chunk);
    for (const std::span<Stored> output : {std::span<Stored>(elsewhere), own}) {
      const auto begun = comm.begin_sums(type, input.data(), chunk, output.data());
      ASSERT_TRUE(begun.ok() && (*begun)->wait().ok());
      ASSERT_EQ(test::first_wrong<Stored>(output, periods.sums, rank * chunk), chunk);
    }
  }
}

TEST_P(TypedSums, EachTypeIsAddedInPairsAndBf16RoundedOnce) {
  with_ranks([](Communicator& comm) {
    expect_sums(comm, NumberType::kFp32, periods_of<float>(comm.world_size()));
    expect_sums(comm, NumberType::kFp64, periods_of<double>(comm.world_size()));
    expect_sums(comm, NumberType::kBf16, bf16_periods_of(comm.world_size()));
  });
}

// One sum, with the memory that it needs until its end.
struct SumUnderWay {
  std::vector<float> input;
  std::vector<float> output;
  CollectivePtr begun;
};

// Each rank waits for them in an order of its own: bits depend on no order of arrival.
TEST_P(TypedSums, SeveralMayBeUnderWay) {
  with_ranks([](Communicator& comm) {
    const SummedPeriods<float> periods = periods_of<float>(comm.world_size());
    const auto n = static_cast<size_t>(comm.world_size());
    const auto rank = static_cast<size_t>(comm.rank());
    std::vector<SumUnderWay> sums(4);
    for (size_t s = 0; s < sums.size(); ++s) {
      const size_t chunk = 1 + s * 70'001;
      sums[s].input.resize(chunk * n);
      test::repeat<float>(periods.of_ranks[rank], s, sums[s].input);
      sums[s].output.resize(chunk);
      sums[s].begun =
          comm.begin_reduce_scatter(sums[s].input.data(), chunk, sums[s].output.data()).value();
    }
    std::vector<size_t> order = {0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank)));
    for (const size_t s : order) ASSERT_TRUE(sums[s].begun->wait().ok());
    for (size_t s = 0; s < sums.size(); ++s) {
      const size_t chunk = sums[s].output.size();
      ASSERT_EQ(test::first_wrong<float>(sums[s].output, periods.sums, s + rank * chunk), chunk);
    }
  });
}

// What `from` sends to `to`: of every size, also nothing.
std::vector<std::byte> message_of(int from, int to) {
  constexpr size_t kSizes[] = {0, 1, 3'000'001, 17};
  return std::vector<std::byte>(kSizes[static_cast<size_t>(from + 2 * to) % 4],
                                static_cast<std::byte>(16 * from + to + 1));
}

struct AllToAllBuffers {
  explicit AllToAllBuffers(const Communicator& comm) {
    for (int r = 0; r < comm.world_size(); ++r) {
      sent.push_back(message_of(comm.rank(), r));
      received.emplace_back(message_of(r, comm.rank()).size());
    }
    for (const auto& bytes : sent) outgoing.emplace_back(bytes);
    for (auto& bytes : received) incoming.emplace_back(bytes);
  }

  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> received;
  std::vector<std::span<const std::byte>> outgoing;
  std::vector<std::span<std::byte>> incoming;
};

// With a sum behind it, and two at once.
TEST_P(TypedSums, AllToAllReachesEveryone) {
  with_ranks([](Communicator& comm) {
    AllToAllBuffers first(comm);
    AllToAllBuffers second(comm);
    const auto one = comm.begin_all_to_all(first.outgoing, first.incoming);
    const auto other = comm.begin_all_to_all(second.outgoing, second.incoming);
    ASSERT_TRUE(one.ok() && other.ok());
    ASSERT_TRUE(comm.barrier().ok());
    ASSERT_TRUE((*other)->wait().ok());
    ASSERT_TRUE((*one)->wait().ok());
    for (int r = 0; r < comm.world_size(); ++r) {
      const std::vector<std::byte> expected = message_of(r, comm.rank());
      EXPECT_TRUE(first.received[static_cast<size_t>(r)] == expected) << r;
      EXPECT_TRUE(second.received[static_cast<size_t>(r)] == expected) << r;
    }
  });
}

class TypedSumsOfSeveral : public TypedSums {
 protected:
  // Each of the operations ends with an error if `begin` comes first.
  static void expect_lost(const std::function<void(Communicator&)>& begin,
                          std::chrono::milliseconds patience) {
    test::on_every_rank(ranks(), [&](CommunicatorOptions options) {
      options.collective_timeout = patience;
      const auto comm = carried_by(carrier(), options);
      ASSERT_TRUE(comm->connect().ok());
      begin(*comm);
      std::vector<double> numbers(8 * static_cast<size_t>(ranks()));
      AllToAllBuffers buffers(*comm);
      const auto sums = comm->begin_sums(NumberType::kFp64, numbers.data(), 8, numbers.data());
      const auto sent = comm->begin_all_to_all(buffers.outgoing, buffers.incoming);
      for (const auto* begun : {&sums, &sent}) {
        const Outcome outcome = begun->ok() ? (**begun)->wait() : Outcome(begun->error());
        ASSERT_FALSE(outcome.ok()) << options.rank;
        EXPECT_EQ(outcome.error().code, kPeerLost);
        EXPECT_THAT(outcome.error().message, HasSubstr("of rank"));
      }
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Carriers, TypedSumsOfSeveral,
                         ::testing::Values(std::tuple(Carrier::kSharedMemory, 3),
                                           std::tuple(Carrier::kGloo, 3),
                                           std::tuple(Carrier::kHierarchical, 4)),
                         name_of_sums);

TEST_P(TypedSumsOfSeveral, EndWhereConnectionsBreak) {
  expect_lost(
      [](Communicator& comm) {
        if (comm.rank() == 1) {
          ASSERT_TRUE(comm.suffer(PeerTrouble::kCut).ok());
        }
      },
      std::chrono::milliseconds(60'000));
}

TEST_P(TypedSumsOfSeveral, EndAtTheDeadline) {
  const auto began = std::chrono::steady_clock::now();
  expect_lost(
      [](Communicator& comm) {
        if (comm.rank() == 1) {
          ASSERT_TRUE(comm.suffer(PeerTrouble::kSilent).ok());
        }
      },
      std::chrono::milliseconds(300));
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(300));
}

TEST_P(TypedSumsOfSeveral, EndAtAnAbort) {
  expect_lost([](Communicator& comm) { comm.abort(); }, std::chrono::milliseconds(60'000));
}

// Rank 0 waits in the second communicator while rank 1 needs the rest of what rank 0 has begun in
// the first, which is more than all slots hold.
TEST(SiblingCommunicators, OneThatWaitsMovesTheBytesOfTheOthers) {
  test::on_every_rank(2, [](CommunicatorOptions options) {
    options.siblings = std::make_shared<Siblings>();
    const std::string dir = options.rendezvous_dir;
    options.rendezvous_dir = dir + "/first";
    const auto first = carried_by(Carrier::kSharedMemory, options);
    options.rendezvous_dir = dir + "/second";
    const auto second = carried_by(Carrier::kSharedMemory, options);
    ASSERT_TRUE(first->connect().ok() && second->connect().ok());
    const size_t chunk = 2 * SharedSegment::kSlots * SharedSegment::kSlotBytes;
    std::vector<char> bytes(2 * chunk, static_cast<char>('a' + options.rank));
    const auto gather = first->begin_all_gather(bytes.data(), chunk).value();
    if (options.rank == 0) {
      ASSERT_TRUE(second->barrier().ok());
    }
    ASSERT_TRUE(gather->wait().ok());
    if (options.rank == 1) {
      ASSERT_TRUE(second->barrier().ok());
    }
    EXPECT_EQ(bytes.front(), 'a');
    EXPECT_EQ(bytes.back(), 'b');
    ASSERT_TRUE(first->barrier().ok());
  });
}

// The sum of a node's ranks is not rounded before the other nodes' are added.
TEST(OrderedSum, PartialSumsOfBf16AddUpToTheSame) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const SummedPeriods<uint16_t> periods = bf16_periods_of(ranks);
    for (int per_node = 1; per_node <= ranks; ++per_node) {
      std::vector<std::vector<float>> sums;
      std::vector<PartialSum> of_nodes;
      size_t rank = 0;
      for (int first = 0; first < ranks; first += per_node) {
        for (const int size : blocks_between(first, std::min(ranks, first + per_node), ranks)) {
          std::vector<PartialSum> parts;
          for (int i = 0; i < size; ++i) parts.push_back({periods.of_ranks[rank++].data()});
          sums.emplace_back(kSummedPeriod);
          sum_in_pairs(NumberType::kBf16, parts, kSummedPeriod, NumberType::kFp32,
                       sums.back().data());
          of_nodes.push_back({sums.back().data(), size});
        }
      }
      std::vector<uint16_t> total(kSummedPeriod);
      sum_in_pairs(NumberType::kFp32, of_nodes, kSummedPeriod, NumberType::kBf16, total.data());
      EXPECT_EQ(total, periods.sums) << ranks << " ranks, " << per_node << " a node";
    }
  }
}

}  // namespace
}  // namespace hpctl
