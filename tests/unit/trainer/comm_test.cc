// SPDX-License-Identifier: Apache-2.0
// Collectives through shared memory, over real sockets, and both. Ranks are threads where nothing
// dies, processes where one does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <tuple>

#include "common/process/process_stat.h"
#include "common/worker/injected_fault.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/comm_world.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/rendezvous_store.h"
#include "trainer/comm/shared_segment.h"

namespace hpctl {
namespace {

using test::carried_by;
using test::options_for;
using ::testing::HasSubstr;

// Runs `body` on every rank of a connected world.
void with_world(Carrier carrier, int world_size, const std::function<void(Communicator&)>& body) {
  test::on_every_rank(world_size, [&](const CommunicatorOptions& options) {
    test::take_part(*carried_by(carrier, options), body);
  });
}

class Carriers : public ::testing::TestWithParam<Carrier> {
 protected:
  static std::unique_ptr<Communicator> make(const CommunicatorOptions& options) {
    return carried_by(GetParam(), options);
  }
  // So many ranks, or as many as the carrier needs.
  static int at_least(int ranks) {
    return GetParam() == Carrier::kHierarchical ? std::max(4, ranks + ranks % 2) : ranks;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Carriers,
                         ::testing::Values(Carrier::kSharedMemory, Carrier::kHierarchical,
                                           Carrier::kGloo),
                         [](const auto& tested) { return test::name_of(tested.param); });

class CarriersOfTwo : public Carriers {};
INSTANTIATE_TEST_SUITE_P(Both, CarriersOfTwo,
                         ::testing::Values(Carrier::kSharedMemory, Carrier::kGloo),
                         [](const auto& tested) { return test::name_of(tested.param); });

std::string name_of_world(const ::testing::TestParamInfo<std::tuple<Carrier, int>>& tested) {
  return test::name_of(std::get<0>(tested.param)) + std::to_string(std::get<1>(tested.param));
}

class Worlds : public ::testing::TestWithParam<std::tuple<Carrier, int>> {
 protected:
  static void with_world(const std::function<void(Communicator&)>& body) {
    hpctl::with_world(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, Worlds,
                         ::testing::Combine(::testing::Values(Carrier::kSharedMemory,
                                                              Carrier::kGloo),
                                            ::testing::Values(2, 3, 4)),
                         name_of_world);
// Whatever would carry it.
INSTANTIATE_TEST_SUITE_P(Alone, Worlds,
                         ::testing::Combine(::testing::Values(Carrier::kSharedMemory),
                                            ::testing::Values(1)),
                         name_of_world);
INSTANTIATE_TEST_SUITE_P(Hierarchical, Worlds,
                         ::testing::Combine(::testing::Values(Carrier::kHierarchical),
                                            ::testing::Values(4, 6)),
                         name_of_world);

TEST_P(Worlds, AllGatherPutsEveryChunkInRankOrder) {
  with_world([](Communicator& comm) {
    const size_t n = comm.world_size();
    for (const size_t chunk : {1UL, 1000UL, 300'000UL}) {
      // A rank's chunk begins at seven times its number.
      std::vector<uint32_t> numbers(chunk + 7 * n);
      std::iota(numbers.begin(), numbers.end(), 0U);
      std::vector<uint32_t> buffer(chunk * n, 0);
      std::copy_n(&numbers[comm.rank() * 7], chunk, &buffer[comm.rank() * chunk]);
      ASSERT_TRUE(comm.all_gather(buffer.data(), chunk * sizeof(uint32_t)).ok());
      for (size_t r = 0; r < n; ++r) {
        ASSERT_TRUE(std::equal(&numbers[r * 7], &numbers[r * 7] + chunk, &buffer[r * chunk])) << r;
      }
    }
  });
}

// Only the sum of pairs has the expected bits.
TEST_P(Worlds, ReduceScatterAddsInPairs) {
  with_world([](Communicator& comm) {
    const int n = comm.world_size();
    const std::vector<float> sums = test::sums_of_numbers(n);
    for (const size_t chunk : {16UL, 4097UL, 600'000UL}) {
      std::vector<float> input(chunk * n);
      test::repeat<float>(test::numbers_of(comm.rank()), 0, input);
      std::vector<float> output(chunk);
      ASSERT_TRUE(comm.reduce_scatter(input.data(), chunk, output.data()).ok());
      ASSERT_EQ(test::first_wrong<float>(output, sums, comm.rank() * chunk), chunk);
    }
  });
}

TEST_P(Worlds, GatherAndReduceMayOverlap) {
  with_world([](Communicator& comm) {
    const size_t chunk = 50'000;
    const int n = comm.world_size();
    std::vector<float> gathered(chunk * n, static_cast<float>(comm.rank()));
    std::vector<float> input(chunk * n, 1.0F);
    std::vector<float> output(chunk);
    auto reduce = comm.begin_reduce_scatter(input.data(), chunk, output.data());
    auto gather = comm.begin_all_gather(gathered.data(), chunk * sizeof(float));
    ASSERT_TRUE(reduce.ok() && gather.ok());
    ASSERT_TRUE((*gather)->wait().ok());
    ASSERT_TRUE((*reduce)->wait().ok());
    EXPECT_EQ(gathered.back(), static_cast<float>(n - 1));
    EXPECT_EQ(output.back(), static_cast<float>(n));
  });
}

TEST_P(Worlds, AllReduceAndTexts) {
  with_world([](Communicator& comm) {
    std::vector<double> values = {1.0, static_cast<double>(comm.rank())};
    ASSERT_TRUE(comm.all_reduce(values).ok());
    const int n = comm.world_size();
    EXPECT_EQ(values[0], n);
    EXPECT_EQ(values[1], n * (n - 1) / 2);
    const auto texts = comm.all_gather_text(std::string(comm.rank() * 3, 'x'));
    ASSERT_TRUE(texts.ok());
    for (int r = 0; r < n; ++r) EXPECT_EQ((*texts)[r], std::string(r * 3, 'x'));
  });
}

// A world of more ranks moves so much data that the thread sanitizer takes half a minute for it.
class WorldsOfFew : public Worlds {};
INSTANTIATE_TEST_SUITE_P(
    Sizes, WorldsOfFew,
    ::testing::Values(std::tuple(Carrier::kSharedMemory, 1), std::tuple(Carrier::kSharedMemory, 2),
                      std::tuple(Carrier::kSharedMemory, 3), std::tuple(Carrier::kGloo, 2),
                      std::tuple(Carrier::kGloo, 3), std::tuple(Carrier::kHierarchical, 4)),
    name_of_world);

// More than all slots of a rank hold, and several at a time; waited for from the last to the first,
// so that each is moved while another one is waited for.
TEST_P(WorldsOfFew, LargeOnesPassPieceByPieceWhicheverIsWaitedForFirst) {
  with_world([](Communicator& comm) {
    const size_t n = comm.world_size();
    const size_t chunk = SharedSegment::kSlots * SharedSegment::kSlotBytes / sizeof(float) + 1000;
    std::vector<char> expected;
    for (size_t r = 0; r < n; ++r) expected.insert(expected.end(), chunk * sizeof(float), 'a' + r);
    std::vector<std::vector<char>> gathered(2, std::vector<char>(expected.size()));
    std::vector<float> input(chunk * n);
    test::repeat<float>({0.5F}, 0, input);
    std::vector<CollectivePtr> begun;
    for (std::vector<char>& buffer : gathered) {
      const size_t own = comm.rank() * chunk * sizeof(float);
      std::copy_n(&expected[own], chunk * sizeof(float), &buffer[own]);
      begun.push_back(comm.begin_all_gather(buffer.data(), chunk * sizeof(float)).value());
    }
    const std::span<float> sum = std::span(input).subspan(comm.rank() * chunk, chunk);
    begun.push_back(comm.begin_reduce_scatter(input.data(), chunk, sum.data()).value());
    for (; !begun.empty(); begun.pop_back()) ASSERT_TRUE(begun.back()->wait().ok());
    for (const std::vector<char>& buffer : gathered) EXPECT_TRUE(buffer == expected);
    EXPECT_EQ(test::first_wrong<float>(sum, {0.5F * static_cast<float>(n)}, 0), chunk);
  });
}

// To the next rank, from the one before; the last one sends nothing.
TEST_P(Worlds, ExchangesReachTheOneTheyAreFor) {
  with_world([](Communicator& comm) {
    const int n = comm.world_size();
    if (n == 1) return;
    const auto sent_by = [&](int rank, size_t bytes) {
      return std::vector<std::byte>(rank == n - 1 ? 0 : bytes, static_cast<std::byte>(rank + 1));
    };
    const int from = (comm.rank() + n - 1) % n;
    for (const size_t bytes : {1UL, 9'000'000UL}) {
      const std::vector<std::byte> outgoing = sent_by(comm.rank(), bytes);
      const std::vector<std::byte> expected = sent_by(from, bytes);
      std::vector<std::byte> incoming(expected.size());
      const auto begun = comm.begin_exchange((comm.rank() + 1) % n, outgoing, from, incoming);
      ASSERT_TRUE(begun.ok());
      ASSERT_TRUE((*begun)->wait().ok());
      EXPECT_TRUE(incoming == expected);
    }
  });
}

// What all communicators make of the same numbers, of which the order of addition shows in the sum.
TEST(Communicator, BitsOfASumAreTheSameWhateverCarriesIt) {
  for (const int n : {2, 3, 4, 6}) {
    const size_t chunk = 100'003;
    std::vector<std::vector<std::vector<uint32_t>>> sums;
    for (const Carrier carrier : {Carrier::kSharedMemory, Carrier::kGloo, Carrier::kHierarchical}) {
      if (carrier == Carrier::kHierarchical && (n < 4 || n % 2 != 0)) continue;
      std::vector<std::vector<uint32_t>>& of_ranks = sums.emplace_back(n);
      with_world(carrier, n, [&](Communicator& comm) {
        std::mt19937 random(comm.rank());
        std::normal_distribution<float> normal;
        std::vector<float> period(1'009);
        for (float& x : period) x = normal(random);
        std::vector<float> input(chunk * n);
        test::repeat<float>(period, 0, input);
        float* own = input.data() + comm.rank() * chunk;
        ASSERT_TRUE(comm.reduce_scatter(input.data(), chunk, own).ok());
        std::vector<uint32_t>& bits = of_ranks[comm.rank()];
        bits.resize(chunk);
        std::memcpy(bits.data(), own, chunk * sizeof(float));
      });
      EXPECT_TRUE(sums.back() == sums.front()) << n << test::name_of(carrier);
    }
  }
}

TEST(Communicator, CountsCollectives) {
  std::atomic<uint64_t> sequence{0};
  CommunicatorOptions options;
  options.sequence = &sequence;
  const auto comm = make_communicator(options);
  ASSERT_TRUE(comm->connect().ok());
  ASSERT_TRUE(comm->barrier().ok());
  ASSERT_TRUE(comm->barrier().ok());
  EXPECT_EQ(sequence.load(), 2U);
}

TEST_P(Carriers, CountsWhatIsBegunAndWhatIsCompleted) {
  test::on_every_rank(at_least(2), [](CommunicatorOptions options) {
    CollectiveCounts counts{};
    options.counts = &counts;
    test::take_part(*make(options), [&](Communicator& comm) {
      const uint64_t before = counts[0].begun;
      EXPECT_EQ(counts[0].completed, before);
      std::vector<char> bytes(comm.world_size());
      auto gather = comm.begin_all_gather(bytes.data(), 1);
      ASSERT_TRUE(gather.ok());
      EXPECT_EQ(counts[0].begun, before + 1);
      EXPECT_EQ(counts[0].completed, before);
      ASSERT_TRUE((*gather)->wait().ok());
      EXPECT_EQ(counts[0].completed, before + 1);
    });
  });
}

// What the ranks behind the first say of themselves before they go: that they are nowhere, or at an
// address from which nobody connects.
void leave_records_of_others(const CommunicatorOptions& options, Carrier carrier) {
  RendezvousStore store(options.rendezvous_dir + "/nodes", std::chrono::milliseconds(1));
  for (int r = 1; r < options.world_size; ++r) {
    const std::string record = test::node_of(carrier, r) + " hptrain-nobody";
    store.set(std::to_string(r), {record.begin(), record.end()});
  }
}

TEST_P(Carriers, MissingPeerIsNamedAtTheDeadline) {
  for (const bool was_there : {false, true}) {
    const TemporaryDirectory dir;
    CommunicatorOptions options = options_for(dir, 0, at_least(2));
    options.rendezvous_timeout = std::chrono::milliseconds(100);
    if (was_there) leave_records_of_others(options, GetParam());
    const auto comm = make(options);
    const Outcome connected = comm->connect();
    ASSERT_FALSE(connected.ok());
    EXPECT_EQ(connected.error().code, kPeerLost);
    EXPECT_THAT(connected.error().message, HasSubstr("rank 1 did not come to the rendezvous"));
  }
}

TEST_P(Carriers, AbortEndsTheRendezvous) {
  for (const bool was_there : {false, true}) {
    const TemporaryDirectory dir;
    const CommunicatorOptions options = options_for(dir, 0, at_least(2));
    if (was_there) leave_records_of_others(options, GetParam());
    const auto comm = make(options);
    auto connected = std::async(std::launch::async, [&] { return comm->connect(); });
    // Rank 0 has said where it is, to Gloo too where that is what it will be, and waits for rank 1.
    const std::chrono::milliseconds patience(60'000);
    RendezvousStore(dir / "rdzv/nodes", patience).wait({"0"});
    if (was_there && GetParam() == Carrier::kGloo) {
      RendezvousStore(dir / "rdzv", patience).wait({"0"});
    }
    comm->abort();
    const Outcome outcome = connected.get();
    ASSERT_FALSE(outcome.ok());
    EXPECT_THAT(outcome.error().message, HasSubstr("abort"));
  }
}

// Starts rank 1 of 2 as a process that reports on a pipe once connected and then runs `body`.
pid_t start_peer(Carrier carrier, const TemporaryDirectory& dir,
                 const std::function<void(Communicator&)>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  signal(SIGPIPE, SIG_IGN);
  const auto comm = carried_by(carrier, options_for(dir, 1, 2));
  if (!comm->connect().ok()) _exit(1);
  body(*comm);
  _exit(0);
}

void end_process(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST_P(CarriersOfTwo, KilledPeerEndsTheCollective) {
  signal(SIGPIPE, SIG_IGN);
  const TemporaryDirectory dir;
  const pid_t peer = start_peer(GetParam(), dir, [](Communicator&) { raise(SIGKILL); });
  const auto comm = make(options_for(dir, 0, 2));
  Outcome outcome = comm->connect();
  std::vector<float> buffer(2 << 20);
  while (outcome.ok()) outcome = comm->all_gather(buffer.data(), 4 << 20);
  EXPECT_EQ(outcome.error().code, kPeerLost);
  EXPECT_THAT(outcome.error().message, HasSubstr("of rank 0 failed"));
  if (GetParam() == Carrier::kSharedMemory) {
    EXPECT_THAT(outcome.error().message, HasSubstr("connection to rank 1 closed"));
  }
  end_process(peer);
}

TEST_P(CarriersOfTwo, AbortWakesAWaiterOnAStoppedPeer) {
  signal(SIGPIPE, SIG_IGN);
  const TemporaryDirectory dir;
  const pid_t peer = start_peer(GetParam(), dir, [](Communicator&) { raise(SIGSTOP); });
  std::atomic<uint64_t> sequence{0};
  CommunicatorOptions options = options_for(dir, 0, 2);
  options.sequence = &sequence;
  const auto comm = make(options);
  ASSERT_TRUE(comm->connect().ok());
  int status = 0;
  ASSERT_EQ(waitpid(peer, &status, WUNTRACED), peer);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::atomic<pid_t> waiter{0};
  auto waiting = std::async(std::launch::async, [&] {
    waiter = gettid();
    double value = 0;
    return comm->all_reduce({&value, 1});
  });
  while (sequence.load() < 2) std::this_thread::yield();
  // Else the abort might come before the wait, and would not have to wake anybody.
  for (int asleep = 0; asleep < 100; std::this_thread::yield()) {
    asleep = process_stat(waiter, kStateField) == "S" ? asleep + 1 : 0;
  }
  comm->abort();
  const Outcome outcome = waiting.get();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("aborted"));
  EXPECT_FALSE(comm->barrier().ok()) << "an aborted communicator stays aborted";
  end_process(peer);
}

// A gather of each rank's number, many of them under way at once.
std::vector<Outcome> gather_many(Communicator& comm) {
  std::vector<std::vector<int>> buffers(5, std::vector<int>(comm.world_size(), -1));
  std::vector<CollectivePtr> gathers;
  for (std::vector<int>& buffer : buffers) {
    buffer[comm.rank()] = comm.rank();
    gathers.push_back(comm.begin_all_gather(buffer.data(), sizeof(int)).value());
  }
  std::vector<Outcome> outcomes;
  for (const CollectivePtr& gather : gathers) outcomes.push_back(gather->wait());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!outcomes[i].ok()) continue;
    for (int r = 0; r < comm.world_size(); ++r) EXPECT_EQ(buffers[i][r], r);
  }
  return outcomes;
}

TEST_P(Carriers, WhatIsLateArrivesAllTheSame) {
  test::on_every_rank(at_least(3), [](const CommunicatorOptions& options) {
    test::take_part(*make(options), [](Communicator& comm) {
      // Before the trouble on every rank: whoever gathers later than the others waits less for it.
      const auto began = std::chrono::steady_clock::now();
      ASSERT_TRUE(comm.barrier().ok());
      if (comm.rank() == 1) {
        ASSERT_TRUE(comm.suffer(PeerTrouble::kLate).ok());
      }
      for (const Outcome& outcome : gather_many(comm)) EXPECT_TRUE(outcome.ok());
      EXPECT_GE(std::chrono::steady_clock::now() - began,
                std::chrono::milliseconds(kCollectiveDelayMs))
          << comm.rank();
    });
  });
}

TEST_P(Carriers, WhatIsLostIsWaitedForByAll) {
  test::on_every_rank(at_least(3), [](CommunicatorOptions options) {
    options.collective_timeout = std::chrono::milliseconds(300);
    // Before any rank gathers: one that begins late hears of those whose patience ended first.
    const auto began = std::chrono::steady_clock::now();
    const auto comm = make(options);
    ASSERT_TRUE(comm->connect().ok());
    if (comm->rank() == 1) {
      ASSERT_TRUE(comm->suffer(PeerTrouble::kSilent).ok());
    }
    for (const Outcome& outcome : gather_many(*comm)) {
      ASSERT_FALSE(outcome.ok()) << comm->rank();
      EXPECT_EQ(outcome.error().code, kPeerLost);
    }
    EXPECT_GE(std::chrono::steady_clock::now() - began, options.collective_timeout)
        << "a connection broke";
  });
}

TEST_P(Carriers, WhereConnectionsBreakAllHearOfIt) {
  test::on_every_rank(at_least(3), [](const CommunicatorOptions& options) {
    const auto comm = make(options);
    ASSERT_TRUE(comm->connect().ok());
    if (comm->rank() == 1) {
      ASSERT_TRUE(comm->suffer(PeerTrouble::kCut).ok());
    }
    const Outcome outcome = comm->barrier();
    ASSERT_FALSE(outcome.ok()) << comm->rank();
    EXPECT_EQ(outcome.error().code, kPeerLost);
  });
}

}  // namespace
}  // namespace hpctl
