// SPDX-License-Identifier: Apache-2.0
// Collectives between nodes of several ranks, all pretended on this machine, against plain loops;
// what every rank hears when one goes; and the order of additions by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <latch>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "tests/unit/trainer/comm_world.h"
#include "trainer/comm/ordered_sum.h"
#include "trainer/comm/rendezvous_communicator.h"

namespace hpctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The ranks of each node.
using Shape = std::vector<int>;

std::vector<std::string> nodes_of(const Shape& shape) {
  std::vector<std::string> nodes;
  for (size_t n = 0; n < shape.size(); ++n) {
    nodes.insert(nodes.end(), static_cast<size_t>(shape[n]), "node" + std::to_string(n));
  }
  return nodes;
}

std::string name_of(const Shape& shape) {
  std::string name;
  for (const int ranks : shape) name += (name.empty() ? "" : "_") + std::to_string(ranks);
  return name;
}

// Bits that are a function of these.
uint64_t noise(uint64_t seed, uint64_t rank, uint64_t index) {
  return Rng(seed * 1'000'003 + rank * 7'919 + index * 31).next();
}

float number(uint64_t seed, int rank, size_t index) {
  const uint64_t bits = noise(seed, static_cast<uint64_t>(rank), index);
  // Of sizes so unlike that the order of additions shows.
  const float scale = static_cast<float>(1U << (bits % 24));
  return scale * (static_cast<float>(bits >> 40) / static_cast<float>(1 << 23) - 1.0F);
}

struct Sizes {
  size_t gathered;  // elements of a chunk
  size_t element;   // bytes: of int8, bf16 and fp16, fp32, int64
  size_t reduced;   // floats of a chunk
};

// The same on all ranks, at random, and first more than what goes on its way at once.
Sizes sizes_of(uint64_t seed) {
  if (seed == 1) return {.gathered = 300'001, .element = 4, .reduced = 270'011};
  Rng random(seed);
  const auto any = [&] {
    const uint64_t bits = 1 + random.below(17);
    return 1 + static_cast<size_t>(random.below(uint64_t{1} << bits));
  };
  const size_t gathered = any();
  const size_t element = size_t{1} << random.below(4);
  return {.gathered = gathered, .element = element, .reduced = any()};
}

// A prime, so that every place in whatever is moved at once has its turn.
constexpr size_t kPeriod = 1'021;

std::vector<float> numbers_of(uint64_t seed, int rank) {
  std::vector<float> numbers(kPeriod);
  for (size_t i = 0; i < kPeriod; ++i) numbers[i] = number(seed, rank, i);
  return numbers;
}

std::vector<float> sums_of_world(uint64_t seed, int ranks) {
  std::vector<std::vector<float>> periods;
  for (int rank = 0; rank < ranks; ++rank) periods.push_back(numbers_of(seed, rank));
  return test::sums_of(periods);
}

std::vector<std::byte> bytes_of(uint64_t seed, int rank) {
  std::vector<std::byte> bytes(kPeriod);
  Rng random(noise(seed, static_cast<uint64_t>(rank), 0));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
  return bytes;
}

struct Buffers {
  Buffers(const Sizes& of, uint64_t of_seed, const Communicator& comm)
      : sizes(of),
        seed(of_seed),
        bytes(of.gathered * of.element * static_cast<size_t>(comm.world_size())),
        input(of.reduced * static_cast<size_t>(comm.world_size())),
        output(of.reduced) {
    const size_t chunk = of.gathered * of.element;
    test::repeat<std::byte>(
        bytes_of(seed, comm.rank()), 0,
        std::span(bytes).subspan(chunk * static_cast<size_t>(comm.rank()), chunk));
    test::repeat<float>(numbers_of(seed, comm.rank()), 0, input);
  }

  Sizes sizes;
  uint64_t seed;
  std::vector<std::byte> bytes;
  std::vector<float> input;
  std::vector<float> output;
};

void expect_right(const Buffers& buffers, const Communicator& comm) {
  const int n = comm.world_size();
  const size_t chunk = buffers.sizes.gathered * buffers.sizes.element;
  for (int r = 0; r < n; ++r) {
    const auto found = std::span(buffers.bytes).subspan(chunk * static_cast<size_t>(r), chunk);
    ASSERT_EQ(test::first_wrong(found, bytes_of(buffers.seed, r), 0), chunk) << "gathered of " << r;
  }
  const size_t reduced = buffers.output.size();
  ASSERT_EQ(test::first_wrong<float>(buffers.output, sums_of_world(buffers.seed, n),
                                     static_cast<size_t>(comm.rank()) * reduced),
            reduced)
      << "sums";
}

class Shapes : public ::testing::TestWithParam<Shape> {
 protected:
  static int ranks() { return static_cast<int>(nodes_of(GetParam()).size()); }
  static Carrier carrier() {
    const Shape& shape = GetParam();
    const bool is_even = std::all_of(shape.begin(), shape.end(), [&shape](int ranks_of_node) {
      return ranks_of_node == shape[0] && ranks_of_node > 1;
    });
    return is_even ? Carrier::kHierarchical : Carrier::kGloo;
  }
  static void with_world(const std::function<void(Communicator&)>& body) {
    const std::vector<std::string> nodes = nodes_of(GetParam());
    test::on_every_rank(ranks(), [&](const CommunicatorOptions& options) {
      RendezvousCommunicator comm(options, nodes[static_cast<size_t>(options.rank)]);
      test::take_part(comm, body);
      EXPECT_EQ(comm.carrier(), carrier());
    });
  }
};
INSTANTIATE_TEST_SUITE_P(All, Shapes,
                         ::testing::Values(Shape{2, 2}, Shape{3, 3}, Shape{2, 2, 2}, Shape{4, 4},
                                           Shape{5, 5}, Shape{3, 1}, Shape{1, 2, 1}),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(Shapes, AnySizesAgainstPlainLoops) {
  with_world([](Communicator& comm) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", rank " + std::to_string(comm.rank()));
      Buffers buffers(sizes_of(seed), seed, comm);
      ASSERT_TRUE(
          comm.all_gather(buffers.bytes.data(), buffers.sizes.gathered * buffers.sizes.element)
              .ok());
      ASSERT_TRUE(
          comm.reduce_scatter(buffers.input.data(), buffers.sizes.reduced, buffers.output.data())
              .ok());
      expect_right(buffers, comm);
    }
  });
}

// As the trainer does: a reduction and gathers under way while the rank does something else, waited
// for in an order of its own.
TEST_P(Shapes, SeveralUnderWayAtOnce) {
  with_world([](Communicator& comm) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", rank " + std::to_string(comm.rank()));
      Buffers first(sizes_of(seed), seed, comm);
      Buffers second(sizes_of(seed + 100), seed + 100, comm);
      std::vector<CollectivePtr> begun;
      for (Buffers* buffers : {&first, &second}) {
        begun.push_back(comm.begin_all_gather(buffers->bytes.data(),
                                              buffers->sizes.gathered * buffers->sizes.element)
                            .value());
        if (buffers == &second) continue;
        begun.push_back(
            comm.begin_reduce_scatter(first.input.data(), first.sizes.reduced, first.output.data())
                .value());
      }
      std::mt19937 own_order(static_cast<unsigned>(seed) + static_cast<unsigned>(comm.rank()));
      std::shuffle(begun.begin(), begun.end(), own_order);
      for (const CollectivePtr& collective : begun) ASSERT_TRUE(collective->wait().ok());
      begun.clear();
      ASSERT_TRUE(
          comm.reduce_scatter(second.input.data(), second.sizes.reduced, second.output.data())
              .ok());
      expect_right(first, comm);
      expect_right(second, comm);
    }
  });
}

// A ring over nodes and within them; the last rank sends nothing.
TEST_P(Shapes, ExchangesReachTheOneTheyAreFor) {
  with_world([](Communicator& comm) {
    const int n = comm.world_size();
    const auto sent_by = [n](int rank) {
      return std::vector<std::byte>(rank == n - 1 ? 0 : 3'000'001, static_cast<std::byte>(rank));
    };
    const int from = (comm.rank() + n - 1) % n;
    const std::vector<std::byte> outgoing = sent_by(comm.rank());
    const std::vector<std::byte> expected = sent_by(from);
    std::vector<std::byte> incoming(expected.size());
    const auto begun = comm.begin_exchange((comm.rank() + 1) % n, outgoing, from, incoming);
    ASSERT_TRUE(begun.ok());
    ASSERT_TRUE((*begun)->wait().ok());
    EXPECT_TRUE(incoming == expected);
  });
}

// What every rank that is left hears when `lost` ends in the middle of training. It is a process;
// the others are threads.
std::vector<std::string> heard_of_the_end_of(int lost, const Shape& shape) {
  constexpr size_t kChunk = 400'000;
  signal(SIGPIPE, SIG_IGN);
  const TemporaryDirectory dir;
  const std::vector<std::string> nodes = nodes_of(shape);
  const int ranks = static_cast<int>(nodes.size());
  const auto make = [&](int rank) {
    CommunicatorOptions options = test::options_for(dir, rank, ranks);
    options.collective_timeout = std::chrono::milliseconds(60'000);
    return RendezvousCommunicator(options, nodes[static_cast<size_t>(rank)]);
  };
  const pid_t process = fork();
  if (process == 0) {
    RendezvousCommunicator comm = make(lost);
    std::vector<float> buffer(static_cast<size_t>(ranks) * kChunk);
    if (!comm.connect().ok() || !comm.all_gather(buffer.data(), kChunk * sizeof(float)).ok()) {
      _exit(1);
    }
    raise(SIGKILL);
  }
  std::mutex mutex;
  std::vector<std::string> heard;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    if (r == lost) continue;
    threads.emplace_back([&, r] {
      RendezvousCommunicator comm = make(r);
      Outcome outcome = comm.connect();
      std::vector<float> buffer(static_cast<size_t>(ranks) * kChunk);
      while (outcome.ok()) outcome = comm.all_gather(buffer.data(), kChunk * sizeof(float));
      EXPECT_EQ(outcome.error().code, kPeerLost);
      const std::lock_guard lock(mutex);
      heard.push_back(outcome.error().message);
    });
  }
  for (std::thread& thread : threads) thread.join();
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFSIGNALED(status));
  return heard;
}

TEST(Hierarchical, AllHearOfOneThatWasKilled) {
  for (const Shape& shape : {Shape{2, 2}, Shape{3, 3}, Shape{2, 2, 2}}) {
    const std::vector<std::string> heard = heard_of_the_end_of(1, shape);
    EXPECT_EQ(heard.size(), nodes_of(shape).size() - 1);
    for (const std::string& message : heard) {
      EXPECT_THAT(message, Not(HasSubstr("timed out"))) << name_of(shape);
      EXPECT_THAT(message, Not(HasSubstr("Timed out"))) << name_of(shape);
    }
    EXPECT_THAT(heard, ::testing::Contains(HasSubstr("connection to rank 1 closed")));
  }
}

TEST(Hierarchical, AbortEndsAWaitForOneThatDoesNotCome) {
  std::latch waiting(3);
  test::on_every_rank(4, [&](const CommunicatorOptions& options) {
    const auto comm = test::carried_by(Carrier::kHierarchical, options);
    ASSERT_TRUE(comm->connect().ok());
    if (options.rank == 3) {
      waiting.wait();
      comm->abort();
      EXPECT_FALSE(comm->barrier().ok());
      return;
    }
    std::thread other([&] {
      waiting.arrive_and_wait();
      comm->abort();
    });
    const Outcome outcome = comm->barrier();
    other.join();
    ASSERT_FALSE(outcome.ok());
    EXPECT_FALSE(comm->barrier().ok()) << "an aborted communicator stays aborted";
  });
}

// Without a call from a rank that computes what it has begun goes on, all the way: the others need
// its sums, and what its counterpart sent it.
TEST(Hierarchical, WhatWasBegunGoesOnWhileARankComputes) {
  std::latch others(3);
  test::on_every_rank(4, [&](const CommunicatorOptions& options) {
    test::take_part(*test::carried_by(Carrier::kHierarchical, options), [&](Communicator& comm) {
      constexpr size_t kChunk = 700'000;
      std::vector<float> input(4 * kChunk, 1.0F);
      std::vector<float> output(kChunk);
      std::vector<int> gathered(4 * kChunk, comm.rank());
      const auto sum = comm.begin_reduce_scatter(input.data(), kChunk, output.data()).value();
      const auto gather = comm.begin_all_gather(gathered.data(), kChunk * sizeof(int)).value();
      if (comm.rank() == 0) others.wait();
      ASSERT_TRUE(sum->wait().ok());
      ASSERT_TRUE(gather->wait().ok());
      EXPECT_EQ(output.back(), 4.0F);
      EXPECT_EQ(gathered.back(), 3);
      if (comm.rank() != 0) others.count_down();
    });
  });
}

// What was begun and is not waited for may go, with the memory that it uses.
TEST(Hierarchical, WhatIsGivenUpIsLetGo) {
  test::on_every_rank(4, [&](const CommunicatorOptions& options) {
    const auto comm = test::carried_by(Carrier::kHierarchical, options);
    ASSERT_TRUE(comm->connect().ok());
    if (options.rank == 2) {
      std::vector<float> input(4 * 1'000'000);
      std::vector<float> output(1'000'000);
      ASSERT_TRUE(comm->begin_reduce_scatter(input.data(), output.size(), output.data()).ok());
    }
    const Outcome outcome = comm->barrier();
    ASSERT_FALSE(outcome.ok()) << options.rank;
    EXPECT_EQ(outcome.error().code, kPeerLost);
  });
}

TEST(OrderedSum, BlocksBetween) {
  EXPECT_THAT(blocks_between(0, 4, 16), ElementsAre(4));
  EXPECT_THAT(blocks_between(8, 16, 16), ElementsAre(8));
  EXPECT_THAT(blocks_between(0, 3, 6), ElementsAre(2, 1));
  EXPECT_THAT(blocks_between(3, 6, 6), ElementsAre(1, 2));
  EXPECT_THAT(blocks_between(4, 7, 7), ElementsAre(3)) << "the last one may be short";
  EXPECT_THAT(blocks_between(5, 10, 15), ElementsAre(1, 2, 2));
  EXPECT_THAT(blocks_between(0, 7, 7), ElementsAre(7));
}

// However consecutive ranks are put together, to the last bit.
TEST(OrderedSum, PartialSumsAddUpToTheSame) {
  constexpr size_t kCount = 5000;
  for (int ranks = 1; ranks <= 20; ++ranks) {
    std::vector<std::vector<float>> numbers(static_cast<size_t>(ranks), std::vector<float>(kCount));
    std::vector<PartialSum> parts;
    for (int r = 0; r < ranks; ++r) {
      std::vector<float>& of_rank = numbers[static_cast<size_t>(r)];
      for (size_t i = 0; i < kCount; ++i) of_rank[i] = number(5, r, i);
      parts.push_back({of_rank.data()});
    }
    std::vector<float> expected(kCount);
    sum_in_pairs(NumberType::kFp32, parts, kCount, NumberType::kFp32, expected.data());
    for (size_t i = 0; i < kCount; i += 97) {
      ASSERT_EQ(expected[i], test::sum_of_ranks([&](int r) { return number(5, r, i); }, ranks));
    }
    for (int per_node = 1; per_node <= ranks; ++per_node) {
      std::vector<std::vector<float>> sums;
      std::vector<int> sizes;
      for (int first = 0; first < ranks; first += per_node) {
        int rank = first;
        for (const int size : blocks_between(first, std::min(ranks, first + per_node), ranks)) {
          sum_in_pairs(
              NumberType::kFp32,
              std::span(parts).subspan(static_cast<size_t>(rank), static_cast<size_t>(size)),
              kCount, NumberType::kFp32, sums.emplace_back(kCount).data());
          sizes.push_back(size);
          rank += size;
        }
      }
      std::vector<PartialSum> of_nodes;
      for (size_t b = 0; b < sums.size(); ++b) of_nodes.push_back({sums[b].data(), sizes[b]});
      std::vector<float> total(kCount);
      sum_in_pairs(NumberType::kFp32, of_nodes, kCount, NumberType::kFp32, total.data());
      ASSERT_EQ(std::memcmp(total.data(), expected.data(), kCount * sizeof(float)), 0)
          << ranks << " ranks, " << per_node << " a node";
    }
  }
}

}  // namespace
}  // namespace hpctl
