// SPDX-License-Identifier: Apache-2.0
// The NCCL communicator over stubs of NCCL and of the CUDA runtime (stub_nccl.cc, stub_cudart.cc),
// which this program is linked with, so that they are found first. Ranks are
// threads where nothing dies, processes where one does.
#include "trainer/comm/nccl_communicator.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include "common/gpu/nccl_api.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/comm_world.h"

extern "C" {  // the stubs'
int stub_nccl_running();
int stub_cuda_blocked();
int stub_cuda_contexts_unasked();
void stub_cuda_advance(int ms);
}

namespace hpctl {
namespace {

using test::options_for;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::unique_ptr<NcclCommunicator> make(const CommunicatorOptions& options,
                                       cuda::Stream compute = nullptr) {
  auto made = NcclCommunicator::create(options, 0, compute);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

class ComputeStream {
 public:
  ComputeStream() { cuda_.stream_create(&stream_, 0); }
  ~ComputeStream() { cuda_.stream_destroy(stream_); }
  cuda::Stream get() const { return stream_; }

 private:
  const cuda::Api& cuda_ = *cuda::load().value();
  cuda::Stream stream_ = nullptr;
};

// Communicators of the stub that exist in this process.
int live_communicators() {
  void* library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  const auto count = reinterpret_cast<int (*)()>(dlsym(library, "stub_nccl_live"));
  const int live = count();
  dlclose(library);
  return live;
}

void with_world(int world_size, const std::function<void(Communicator&)>& body) {
  test::on_every_rank(world_size, [&](const CommunicatorOptions& options) {
    // Ranks of one process would wait for each other on the default stream.
    const ComputeStream compute;
    test::take_part(*make(options, compute.get()), body);
  });
}

class NcclWorlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, NcclWorlds, ::testing::Values(1, 2, 4));

TEST_P(NcclWorlds, GatherAndReduceOverlapAndAreOrderedOnTheComputeStream) {
  with_world(GetParam(), [](Communicator& comm) {
    const auto n = static_cast<size_t>(comm.world_size());
    const auto rank = static_cast<size_t>(comm.rank());
    const size_t chunk = 50'000;
    std::vector<uint32_t> gathered(chunk * n);
    for (size_t i = 0; i < chunk; ++i) gathered[rank * chunk + i] = static_cast<uint32_t>(rank + i);
    std::vector<float> input(chunk * n, static_cast<float>(rank + 1));
    std::vector<float> output(chunk);
    auto reduce = comm.begin_reduce_scatter(input.data(), chunk, output.data());
    auto gather = comm.begin_all_gather(gathered.data(), chunk * sizeof(uint32_t));
    ASSERT_TRUE(reduce.ok() && gather.ok());
    ASSERT_TRUE((*gather)->wait().ok());
    ASSERT_TRUE((*reduce)->wait().ok());
    ASSERT_TRUE(comm.barrier().ok()) << "host values wait for what was begun before them";
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < chunk; ++i) ASSERT_EQ(gathered[r * chunk + i], r + i);
    }
    EXPECT_EQ(output, std::vector<float>(chunk, static_cast<float>(n * (n + 1) / 2)));
  });
}

TEST_P(NcclWorlds, HostValuesAndTexts) {
  with_world(GetParam(), [](Communicator& comm) {
    std::vector<double> values = {1.0, static_cast<double>(comm.rank())};
    ASSERT_TRUE(comm.all_reduce(values).ok());
    const int n = comm.world_size();
    EXPECT_EQ(values[0], n);
    EXPECT_EQ(values[1], n * (n - 1) / 2);
    const auto texts = comm.all_gather_text(std::string(static_cast<size_t>(comm.rank()) * 3, 'x'));
    ASSERT_TRUE(texts.ok());
    for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
      EXPECT_EQ((*texts)[r], std::string(r * 3, 'x'));
    }
  });
}

// What the stub makes of its settings is the same for every rank.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }

 private:
  const char* name_;
};

// The one rank's computation is held for 7 ms until the other begins; the other's is not held.
// A thread that has used no GPU, as those that save and read data, makes no context on GPU 0.
TEST(HostMemory, IsTakenOnTheRanksOwnGpu) {
  const cuda::Api& cuda = *cuda::load().value();
  const auto taken_by_new_thread = [&](auto take) {
    const int before = stub_cuda_contexts_unasked();
    std::thread([&] {
      void* memory = nullptr;
      EXPECT_EQ(take(&memory), cuda::kSuccess);
      EXPECT_EQ(cuda.host_free(memory), cuda::kSuccess);
    }).join();
    return stub_cuda_contexts_unasked() - before;
  };
  EXPECT_EQ(taken_by_new_thread([&](void** to) { return cuda::host_malloc_on(cuda, 0, to, 8); }),
            0);
  EXPECT_EQ(taken_by_new_thread([&](void** to) { return cuda.host_malloc(to, 8); }), 1)
      << "the stub sees it";
  void* memory = nullptr;
  EXPECT_NE(cuda::host_malloc_on(cuda, 99, &memory, 8), cuda::kSuccess) << "no such GPU";
}

TEST(Nccl, StreamsTellHowLongTheyWaitedAndWhatIsCompleted) {
  std::promise<void> connected;
  std::promise<void> seven_ms_later;
  with_world(2, [&](Communicator& comm) {
    std::vector<char> bytes(2);
    if (comm.rank() == 0) connected.get_future().wait();
    if (comm.rank() == 1) {
      connected.set_value();
      seven_ms_later.get_future().wait();
    }
    auto gather = comm.begin_all_gather(bytes.data(), 1);
    ASSERT_TRUE(gather.ok() && (*gather)->wait().ok());
    if (comm.rank() == 0) {
      while (stub_nccl_running() != 1 || stub_cuda_blocked() != 1) std::this_thread::yield();
      stub_cuda_advance(7);
      seven_ms_later.set_value();
    }
    ASSERT_TRUE(comm.settle().ok());
    const std::optional<StreamTimes> times = comm.take_stream_times();
    ASSERT_TRUE(times.has_value());
    EXPECT_DOUBLE_EQ(times->waiting, comm.rank() == 0 ? 0.007 : 0);
    EXPECT_DOUBLE_EQ(times->under_way, comm.rank() == 0 ? 0.007 : 0);
    EXPECT_EQ(comm.take_stream_times()->waiting, 0) << "taken";
  });
}

TEST(Nccl, CountsWhatIsKnownToBeCompleted) {
  std::promise<void> looked;
  test::on_every_rank(2, [&](CommunicatorOptions options) {
    CollectiveCounts counts{};
    options.counts = &counts;
    options.group = 1;
    const ComputeStream compute;
    test::take_part(*make(options, compute.get()), [&](Communicator& comm) {
      const uint64_t before = counts[1].begun;
      EXPECT_EQ(counts[1].completed, before);
      std::vector<char> bytes(2);
      if (comm.rank() == 1) looked.get_future().wait();
      auto gather = comm.begin_all_gather(bytes.data(), 1);
      ASSERT_TRUE(gather.ok() && (*gather)->wait().ok());
      if (comm.rank() == 0) {
        EXPECT_EQ(counts[1].begun, before + 1);
        EXPECT_EQ(counts[1].completed, before);
        looked.set_value();
      }
      ASSERT_TRUE(comm.settle().ok());
      EXPECT_EQ(counts[1].completed, before + 1);
      EXPECT_EQ(counts[0].begun, 0U);
    });
  });
}

TEST(Nccl, CallsInProgressAreAwaited) {
  const Setting slow("STUB_NCCL_SLOW", "5");
  with_world(2, [](Communicator& comm) {
    for (int i = 0; i < 20; ++i) {
      double one = 1;
      ASSERT_TRUE(comm.all_reduce({&one, 1}).ok());
      EXPECT_EQ(one, 2);
    }
  });
}

// Whether it is one of the communicator, or what a call answers.
TEST(Nccl, AnErrorIsAPeerLost) {
  for (const char* how : {"STUB_NCCL_ERROR_AT", "STUB_NCCL_REFUSE_AT"}) {
    const Setting error(how, "3");
    const TemporaryDirectory dir;
    std::vector<std::future<Outcome>> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.push_back(std::async(std::launch::async, [&, r]() -> Outcome {
        const auto comm = make(options_for(dir, r, 2));
        HP_TRY(comm->connect());
        HP_TRY(comm->barrier());
        return comm->barrier();
      }));
    }
    for (auto& rank : ranks) {
      const Outcome outcome = rank.get();
      ASSERT_FALSE(outcome.ok()) << how;
      EXPECT_EQ(outcome.error().code, kPeerLost) << how;
      EXPECT_THAT(outcome.error().message,
                  AllOf(HasSubstr("collective 3"), HasSubstr("unhandled system error")));
    }
  }
}

TEST(Nccl, MissingPeerIsNamedAtTheDeadline) {
  const TemporaryDirectory dir;
  CommunicatorOptions options = options_for(dir, 0, 2);
  options.rendezvous_timeout = std::chrono::milliseconds(100);
  const Outcome connected = make(options)->connect();
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().code, kPeerLost);
  EXPECT_THAT(connected.error().message, HasSubstr("rank 1 did not come to the rendezvous"));
}

// A checkpoint keeps it, and a resume under another one is not called exact.
TEST(Nccl, TheLabelHasWhatTheOrderOfAdditionsDependsOn) {
  ::setenv("NCCL_ALGO", "Ring", 1);
  ::setenv("NCCL_NTHREADS", "256", 1);
  ::setenv("NCCL_DEBUG", "WARN", 1);
  const std::string label = nccl::label();
  for (const char* name : {"NCCL_ALGO", "NCCL_NTHREADS", "NCCL_DEBUG"}) ::unsetenv(name);
  EXPECT_THAT(label, AllOf(StartsWith("2.21.5"), HasSubstr(" NCCL_ALGO=Ring"),
                           HasSubstr(" NCCL_NTHREADS=256"), Not(HasSubstr("NCCL_DEBUG"))));
}

TEST(Cuda, TheProductIsNamedAsTheDriverDoes) {
  EXPECT_EQ(cuda::product_name(**cuda::load(), 0), "NVIDIA H100 80GB HBM3");
}

TEST_P(NcclWorlds, ExchangesReachTheOneTheyAreFor) {
  with_world(GetParam(), [](Communicator& comm) {
    const int n = comm.world_size();
    const std::vector<std::byte> outgoing(70'001, static_cast<std::byte>(comm.rank()));
    std::vector<std::byte> incoming(outgoing.size());
    const int from = (comm.rank() + n - 1) % n;
    const auto begun = comm.begin_exchange((comm.rank() + 1) % n, outgoing, from, incoming);
    ASSERT_TRUE(begun.ok() && (*begun)->wait().ok());
    ASSERT_TRUE(comm.barrier().ok());
    EXPECT_EQ(incoming, std::vector<std::byte>(outgoing.size(), static_cast<std::byte>(from)));
  });
}

// Each rank sends to all, of other sizes to each, and nothing where both numbers are even.
TEST_P(NcclWorlds, AllToAllReachesEveryone) {
  const auto message = [](int from, int to) {
    const size_t bytes = from % 2 == 0 && to % 2 == 0 ? 0 : 1'000 * static_cast<size_t>(from) + 7;
    return std::vector<std::byte>(bytes, static_cast<std::byte>(16 * from + to));
  };
  with_world(GetParam(), [&](Communicator& comm) {
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> received;
    for (int r = 0; r < comm.world_size(); ++r) {
      sent.push_back(message(comm.rank(), r));
      received.emplace_back(message(r, comm.rank()).size());
    }
    const std::vector<std::span<const std::byte>> outgoing(sent.begin(), sent.end());
    const std::vector<std::span<std::byte>> incoming(received.begin(), received.end());
    const auto begun = comm.begin_all_to_all(outgoing, incoming);
    ASSERT_TRUE(begun.ok() && (*begun)->wait().ok());
    ASSERT_TRUE(comm.barrier().ok());
    for (int r = 0; r < comm.world_size(); ++r) {
      EXPECT_EQ(received[static_cast<size_t>(r)], message(r, comm.rank())) << r;
    }
  });
}

TEST(Nccl, RefusesSumsThatNcclWouldRound) {
  with_world(2, [](Communicator& comm) {
    for (const NumberType type : {NumberType::kBf16, NumberType::kFp64}) {
      const auto begun = comm.begin_sums(type, nullptr, 0, nullptr);
      ASSERT_FALSE(begun.ok());
      EXPECT_EQ(begun.error().code, ErrorCode::kFailedPrecondition);
    }
  });
}

TEST(Nccl, AnotherGpuThanThereIsIsNamed) {
  const TemporaryDirectory dir;
  const auto made = NcclCommunicator::create(options_for(dir, 0, 1), 7, nullptr);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "cannot use GPU 7: invalid device ordinal");
}

// Rank 1 of 2 as a process of its own, so that it has its own stub: forked before this process has
// threads of the stub would be best, but exec is surer.
pid_t start_peer(const TemporaryDirectory& dir, const char* what) {
  const std::string directory = dir / "rdzv";
  const pid_t pid = fork();
  if (pid != 0) return pid;
  execl("/proc/self/exe", "nccl_test", "--peer", directory.c_str(), what, nullptr);
  _exit(127);
}

void end_process(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST(Nccl, KilledPeerEndsTheCollective) {
  const TemporaryDirectory dir;
  const pid_t peer = start_peer(dir, "die");
  const auto comm = make(options_for(dir, 0, 2));
  Outcome outcome = comm->connect();
  while (outcome.ok()) outcome = comm->barrier();
  EXPECT_EQ(outcome.error().code, kPeerLost);
  EXPECT_THAT(outcome.error().message, HasSubstr("remote process exited"));
  end_process(peer);
}

TEST(Nccl, AbortWakesAWaiterOnAStoppedPeer) {
  const TemporaryDirectory dir;
  const pid_t peer = start_peer(dir, "stop");
  std::atomic<uint64_t> sequence{0};
  CommunicatorOptions options = options_for(dir, 0, 2);
  options.sequence = &sequence;
  const auto comm = make(options);
  ASSERT_TRUE(comm->connect().ok());
  int status = 0;
  ASSERT_EQ(waitpid(peer, &status, WUNTRACED), peer);
  ASSERT_TRUE(WIFSTOPPED(status));
  auto waiting = std::async(std::launch::async, [&] { return comm->barrier(); });
  while (sequence.load() < 2) std::this_thread::yield();
  comm->abort();
  const Outcome outcome = waiting.get();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("aborted"));
  EXPECT_FALSE(comm->barrier().ok()) << "an aborted communicator stays aborted";
  end_process(peer);
}

TEST(Nccl, GenerationsFollowEachOtherWithoutALeak) {
  for (int generation = 0; generation < 30; ++generation) {
    with_world(3, [](Communicator& comm) {
      std::vector<float> buffer(3000, 1.0F);
      ASSERT_TRUE(comm.begin_all_gather(buffer.data(), 4000).ok()) << "left without wait()";
      ASSERT_TRUE(comm.barrier().ok());
    });
  }
  EXPECT_EQ(live_communicators(), 0);
}

int run_peer(const std::string& directory, const std::string& what) {
  CommunicatorOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.rendezvous_dir = directory;
  auto comm = NcclCommunicator::create(options, 0, nullptr);
  if (!comm.ok() || !(*comm)->connect().ok()) return 1;
  raise(what == "die" ? SIGKILL : SIGSTOP);
  return 0;
}

}  // namespace
}  // namespace hpctl

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc == 4 && std::string(argv[1]) == "--peer") return hpctl::run_peer(argv[2], argv[3]);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
