// SPDX-License-Identifier: Apache-2.0
// Collectives with real sockets. Ranks are threads where nothing dies, processes where one does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "common/base/injected_fault.h"
#include "common/base/process_stat.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/comm_world.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/rendezvous_store.h"

namespace hpctl {
namespace {

using test::options_for;
using ::testing::HasSubstr;

// Runs `body` on every rank of a connected world.
void with_world(int world_size, const std::function<void(Communicator&)>& body) {
  test::on_every_rank(world_size, [&](const CommunicatorOptions& options) {
    test::take_part(*make_communicator(options), body);
  });
}

class Worlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Worlds, ::testing::Values(1, 2, 3, 4));

TEST_P(Worlds, AllGatherPutsEveryChunkInRankOrder) {
  with_world(GetParam(), [](Communicator& comm) {
    for (const size_t chunk : {1UL, 1000UL, 300'000UL}) {
      std::vector<uint32_t> buffer(chunk * comm.world_size(), 0);
      for (size_t i = 0; i < chunk; ++i) buffer[comm.rank() * chunk + i] = comm.rank() * 7 + i;
      ASSERT_TRUE(comm.all_gather(buffer.data(), chunk * sizeof(uint32_t)).ok());
      for (int r = 0; r < comm.world_size(); ++r) {
        for (size_t i = 0; i < chunk; ++i) ASSERT_EQ(buffer[r * chunk + i], r * 7 + i);
      }
    }
  });
}

// Values whose sum depends on the order of addition: only rank order gives the expected bits.
TEST_P(Worlds, ReduceScatterAddsInRankOrder) {
  with_world(GetParam(), [](Communicator& comm) {
    const int n = comm.world_size();
    const auto value = [](int rank, size_t i) {
      return (rank % 2 == 0 ? 1.0F : -1.0F) * (1e7F + static_cast<float>(i % 97)) / (rank + 0.3F);
    };
    for (const size_t chunk : {16UL, 4097UL, 600'000UL}) {
      std::vector<float> input(chunk * n);
      for (size_t i = 0; i < input.size(); ++i) input[i] = value(comm.rank(), i);
      std::vector<float> output(chunk);
      ASSERT_TRUE(comm.reduce_scatter(input.data(), chunk, output.data()).ok());
      for (size_t i = 0; i < chunk; ++i) {
        float expected = value(0, comm.rank() * chunk + i);
        for (int r = 1; r < n; ++r) expected += value(r, comm.rank() * chunk + i);
        ASSERT_EQ(output[i], expected) << i;
      }
    }
  });
}

TEST_P(Worlds, GatherAndReduceMayOverlap) {
  with_world(GetParam(), [](Communicator& comm) {
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
  with_world(GetParam(), [](Communicator& comm) {
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

TEST(Communicator, CountsWhatIsBegunAndWhatIsCompleted) {
  test::on_every_rank(2, [](CommunicatorOptions options) {
    CollectiveCounts counts{};
    options.counts = &counts;
    test::take_part(*make_communicator(options), [&](Communicator& comm) {
      const uint64_t before = counts[0].begun;
      EXPECT_EQ(counts[0].completed, before);
      std::vector<char> bytes(2);
      auto gather = comm.begin_all_gather(bytes.data(), 1);
      ASSERT_TRUE(gather.ok());
      EXPECT_EQ(counts[0].begun, before + 1);
      EXPECT_EQ(counts[0].completed, before);
      ASSERT_TRUE((*gather)->wait().ok());
      EXPECT_EQ(counts[0].completed, before + 1);
    });
  });
}

TEST(Communicator, MissingPeerIsNamedAtTheDeadline) {
  const TemporaryDirectory dir;
  CommunicatorOptions options = options_for(dir, 0, 2);
  options.rendezvous_timeout = std::chrono::milliseconds(100);
  const auto comm = make_communicator(options);
  const Outcome connected = comm->connect();
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().code, kPeerLost);
  EXPECT_THAT(connected.error().message, HasSubstr("rank 1 did not come to the rendezvous"));
}

TEST(Communicator, AbortEndsTheRendezvous) {
  const TemporaryDirectory dir;
  const auto comm = make_communicator(options_for(dir, 0, 2));
  auto connected = std::async(std::launch::async, [&] { return comm->connect(); });
  // Rank 0 has published its addresses and waits for rank 1.
  RendezvousStore(dir / "rdzv", std::chrono::milliseconds(60'000)).wait({"0"});
  comm->abort();
  const Outcome outcome = connected.get();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("abort"));
}

// Starts rank 1 of 2 as a process that reports on a pipe once connected and then runs `body`.
pid_t start_peer(const TemporaryDirectory& dir, const std::function<void(Communicator&)>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  signal(SIGPIPE, SIG_IGN);
  const auto comm = make_communicator(options_for(dir, 1, 2));
  if (!comm->connect().ok()) _exit(1);
  body(*comm);
  _exit(0);
}

void end_process(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST(Communicator, KilledPeerEndsTheCollective) {
  signal(SIGPIPE, SIG_IGN);
  const TemporaryDirectory dir;
  const pid_t peer = start_peer(dir, [](Communicator&) { raise(SIGKILL); });
  const auto comm = make_communicator(options_for(dir, 0, 2));
  Outcome outcome = comm->connect();
  std::vector<float> buffer(2 << 20);
  while (outcome.ok()) outcome = comm->all_gather(buffer.data(), 4 << 20);
  EXPECT_EQ(outcome.error().code, kPeerLost);
  EXPECT_THAT(outcome.error().message, HasSubstr("of rank 0 failed"));
  end_process(peer);
}

TEST(Communicator, AbortWakesAWaiterOnAStoppedPeer) {
  signal(SIGPIPE, SIG_IGN);
  const TemporaryDirectory dir;
  const pid_t peer = start_peer(dir, [](Communicator&) { raise(SIGSTOP); });
  std::atomic<uint64_t> sequence{0};
  CommunicatorOptions options = options_for(dir, 0, 2);
  options.sequence = &sequence;
  const auto comm = make_communicator(options);
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

TEST(PeerTroubles, WhatIsLateArrivesAllTheSame) {
  test::on_every_rank(3, [](const CommunicatorOptions& options) {
    test::take_part(*make_communicator(options), [](Communicator& comm) {
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

TEST(PeerTroubles, WhatIsLostIsWaitedForByAll) {
  test::on_every_rank(3, [](CommunicatorOptions options) {
    options.collective_timeout = std::chrono::milliseconds(300);
    const auto comm = make_communicator(options);
    ASSERT_TRUE(comm->connect().ok());
    if (comm->rank() == 1) {
      ASSERT_TRUE(comm->suffer(PeerTrouble::kSilent).ok());
    }
    const auto began = std::chrono::steady_clock::now();
    for (const Outcome& outcome : gather_many(*comm)) {
      ASSERT_FALSE(outcome.ok()) << comm->rank();
      EXPECT_EQ(outcome.error().code, kPeerLost);
    }
    EXPECT_GE(std::chrono::steady_clock::now() - began, options.collective_timeout)
        << "a connection broke";
  });
}

TEST(PeerTroubles, WhereConnectionsBreakAllHearOfIt) {
  test::on_every_rank(3, [](const CommunicatorOptions& options) {
    const auto comm = make_communicator(options);
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
