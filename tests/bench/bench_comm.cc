// SPDX-License-Identifier: Apache-2.0
// Collectives between ranks of one machine, over Gloo, through slots in shared memory, in place
// (the buffers themselves are shared), and, between two pretended nodes of two ranks, through slots
// and over Gloo: the same ranks, processes each, do all in turn. In place each collective has the
// same buffer, so that it also waits for the readers of the one before. `MiB` is what one rank has
// gathered, or gives to be added. Milliseconds are medians of kRounds by the clock; CPU
// milliseconds are of all ranks and their threads. `net MiB` is what the kernel says that a node
// has sent to the other one in one collective, where the first half of the ranks is one and the
// other half the other. The ratio of both is that of medians of one run. And how long after its
// SIGKILL a rank is known to be gone, by one that waits for it.
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/bench/figures.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/rendezvous_communicator.h"

namespace hpctl {
namespace {

constexpr int kRounds = 7;
constexpr std::array kCarriers = {"gloo", "shared memory", "in place", "hierarchical"};
constexpr size_t kInPlace = 2;
constexpr std::array kOperations = {"all-gather", "reduce-scatter"};

double cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// Of one collective.
struct Times {
  double ms = 0;
  double cpu_ms = 0;
  double net_mib = 0;
};

// Hierarchical needs several ranks on each of two nodes.
size_t carriers_among(int ranks) { return ranks < 4 ? 3 : 4; }

// A TCP connection of this process.
struct Connection {
  int own_port = 0;
  int other_port = 0;
  uint64_t sent = 0;  // bytes
};

std::vector<Connection> connections() {
  std::vector<Connection> found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in own{};
    sockaddr_in other{};
    socklen_t own_size = sizeof own;
    socklen_t other_size = sizeof other;
    tcp_info info{};
    socklen_t info_size = sizeof info;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_size) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_size) != 0) {
      continue;
    }
    found.push_back({ntohs(own.sin_port), ntohs(other.sin_port), info.tcpi_bytes_sent});
  }
  return found;
}

// Whether a rank with these ports is on the other node, by port. All ranks call it.
std::map<int, bool> ports_of_other_node(Communicator& comm) {
  std::string ports;
  for (const Connection& connection : connections()) {
    ports += std::to_string(connection.own_port) + " ";
  }
  const std::vector<std::string> all = comm.all_gather_text(ports).value();
  std::map<int, bool> is_other;
  const int half = comm.world_size() / 2;
  for (int r = 0; r < comm.world_size(); ++r) {
    std::istringstream words(all[static_cast<size_t>(r)]);
    for (int port = 0; words >> port;) is_other[port] = r / half != comm.rank() / half;
  }
  return is_other;
}

double mib_sent(const std::map<int, bool>& is_other) {
  double bytes = 0;
  for (const Connection& connection : connections()) {
    if (is_other.at(connection.other_port)) bytes += static_cast<double>(connection.sent);
  }
  return bytes / (1 << 20);
}

struct Buffers {
  std::span<float> input;
  std::span<float> output;

  size_t chunk() const { return output.size(); }
};

Times time_of(Communicator& comm, const std::string& operation, const Buffers& buffers, int repeats,
              const std::map<int, bool>& is_other) {
  HP_CHECK(comm.barrier().ok());
  const double sent_before = mib_sent(is_other);
  const auto begin = std::chrono::steady_clock::now();
  const double cpu_before = cpu_ms();
  for (int i = 0; i < repeats; ++i) {
    HP_CHECK(comm.await_readers(std::as_bytes(buffers.input)).ok());
    const Outcome done =
        operation == "all-gather"
            ? comm.all_gather(buffers.input.data(), buffers.chunk() * sizeof(float))
            : comm.reduce_scatter(buffers.input.data(), buffers.chunk(), buffers.output.data());
    HP_CHECK(done.ok());
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::array<double, 2> of_all = {cpu_ms() - cpu_before, mib_sent(is_other) - sent_before};
  HP_CHECK(comm.all_reduce(of_all).ok());
  return {took.count() / repeats, of_all[0] / repeats, of_all[1] / 2 / repeats};
}

// One rank's part; the first writes what it found to `out`, a line for each operation and carrier.
void take_part(CommunicatorOptions options, size_t mib, std::FILE* out) {
  std::vector<std::unique_ptr<Communicator>> comms;
  const std::string dir = options.rendezvous_dir;
  const std::string here = NodePeers::this_node().value();
  const std::string pair = here + ".pair" + std::to_string(options.rank / 2);
  const std::array nodes = {std::string(), here, here, pair};
  for (size_t c = 0; c < carriers_among(options.world_size); ++c) {
    const std::string& node = nodes[c];
    options.rendezvous_dir = dir + "/" + std::to_string(comms.size());
    comms.push_back(std::make_unique<RendezvousCommunicator>(options, node));
    HP_CHECK(comms.back()->connect().ok());
  }
  const size_t chunk = (mib << 20) / sizeof(float) / static_cast<size_t>(options.world_size);
  const size_t floats = chunk * static_cast<size_t>(options.world_size);
  std::vector<float> input(floats, 1.0F);
  std::vector<float> output(chunk);
  auto* const shared =
      static_cast<float*>(comms[kInPlace]->allocate_shared(floats * sizeof(float)));
  HP_CHECK(shared != nullptr);
  std::copy(input.begin(), input.end(), shared);
  const int repeats = mib > 4 ? 5 : 50;
  const std::map<int, bool> is_other = ports_of_other_node(*comms.front());
  for (const char* operation : kOperations) {
    std::array<std::vector<double>, kCarriers.size()> ms;
    std::array<std::vector<double>, kCarriers.size()> cpu;
    std::array<std::vector<double>, kCarriers.size()> net;
    for (int round = 0; round <= kRounds; ++round) {
      for (size_t c = 0; c < comms.size(); ++c) {
        const Buffers buffers = {c == kInPlace ? std::span(shared, floats) : std::span(input),
                                 output};
        const Times times = time_of(*comms[c], operation, buffers, repeats, is_other);
        if (round == 0) continue;  // touches its memory for the first time
        ms[c].push_back(times.ms);
        cpu[c].push_back(times.cpu_ms);
        net[c].push_back(times.net_mib);
      }
    }
    if (options.rank != 0) continue;
    for (size_t c = 0; c < comms.size(); ++c) {
      std::fprintf(out, "%f %f %f\n", testing::median(ms[c]), testing::median(cpu[c]),
                   testing::median(net[c]));
    }
  }
}

std::vector<pid_t> start_ranks(const std::string& dir, int ranks, size_t mib, int pipe) {
  std::vector<pid_t> started;
  for (int r = 0; r < ranks; ++r) {
    const pid_t pid = fork();
    HP_CHECK(pid >= 0);
    if (pid != 0) {
      started.push_back(pid);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::signal(SIGPIPE, SIG_IGN);
    CommunicatorOptions options;
    options.rank = r;
    options.world_size = ranks;
    options.rendezvous_dir = dir;
    std::FILE* out = fdopen(pipe, "w");
    take_part(options, mib, out);
    std::fclose(out);
    _exit(0);
  }
  return started;
}

void measure(int ranks, size_t mib, nlohmann::ordered_json& cases) {
  std::string dir = "/tmp/hpctl-bench-XXXXXX";
  HP_CHECK(mkdtemp(dir.data()) != nullptr);
  int ends[2];
  HP_CHECK(pipe(ends) == 0);
  const std::vector<pid_t> started = start_ranks(dir, ranks, mib, ends[1]);
  close(ends[1]);
  std::FILE* in = fdopen(ends[0], "r");
  for (const char* operation : kOperations) {
    Times first;
    for (size_t c = 0; c < carriers_among(ranks); ++c) {
      const char* const carrier = kCarriers[c];
      Times times;
      HP_CHECK(std::fscanf(in, "%lf %lf %lf", &times.ms, &times.cpu_ms, &times.net_mib) == 3);
      if (first.ms == 0) first = times;
      std::printf("%5d %5zu %-15s %-14s %9.3f %9.3f %8.2f %7.2f %7.2f\n", ranks, mib, operation,
                  carrier, times.ms, times.cpu_ms, times.net_mib, first.ms / times.ms,
                  first.cpu_ms / times.cpu_ms);
      std::fflush(stdout);
      cases.push_back({{"ranks", ranks},
                       {"mib", mib},
                       {"operation", operation},
                       {"carrier", carrier},
                       {"ms", times.ms},
                       {"cpu_ms", times.cpu_ms},
                       {"net_mib", times.net_mib},
                       {"times_gloo", first.ms / times.ms},
                       {"times_gloo_cpu", first.cpu_ms / times.cpu_ms}});
    }
  }
  std::fclose(in);
  for (const pid_t pid : started) {
    int status = 0;
    HP_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  }
  HP_CHECK(remove_tree(dir).ok());
}

std::unique_ptr<Communicator> connected(const std::string& dir, int rank, const std::string& node) {
  CommunicatorOptions options;
  options.rank = rank;
  options.world_size = 2;
  options.rendezvous_dir = dir;
  auto comm = std::make_unique<RendezvousCommunicator>(options, node);
  HP_CHECK(comm->connect().ok());
  return comm;
}

// Milliseconds from the SIGKILL of the second of two ranks to the failure of what the first waits
// for.
double notice_ms(const std::string& node) {
  using Clock = std::chrono::steady_clock;
  std::string dir = "/tmp/hpctl-bench-XXXXXX";
  HP_CHECK(mkdtemp(dir.data()) != nullptr);
  const pid_t second = fork();
  HP_CHECK(second >= 0);
  if (second == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto comm = connected(dir, 1, node);
    while (comm->rank() == 1) pause();
  }
  const auto comm = connected(dir, 0, node);
  Clock::time_point noticed;
  std::thread waiting([&] {
    HP_CHECK(!comm->barrier().ok());
    noticed = Clock::now();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it waits by now
  const Clock::time_point killed = Clock::now();
  HP_CHECK(kill(second, SIGKILL) == 0);
  waiting.join();
  HP_CHECK(waitpid(second, nullptr, 0) == second && remove_tree(dir).ok());
  return std::chrono::duration<double, std::milli>(noticed - killed).count();
}

void measure_losses(nlohmann::ordered_json& cases) {
  constexpr int kLosses = 21;
  const std::array nodes = {std::string(), NodePeers::this_node().value()};
  std::array<std::vector<double>, 2> ms;
  for (int i = 0; i < kLosses; ++i) {
    for (size_t c = 0; c < nodes.size(); ++c) ms[c].push_back(notice_ms(nodes[c]));
  }
  for (size_t c = 0; c < nodes.size(); ++c) {
    const double most = testing::at_share(ms[c], 1);
    std::printf("a killed rank is known to be gone, %s: median %.2f ms, most %.2f ms of %d\n",
                kCarriers[c], testing::median(ms[c]), most, kLosses);
    cases.push_back({{"carrier", kCarriers[c]},
                     {"notice_ms", testing::median(ms[c])},
                     {"most_notice_ms", most}});
  }
}

}  // namespace
}  // namespace hpctl

int main() {
  nlohmann::ordered_json cases;
  std::printf("%5s %5s %-15s %-14s %9s %9s %8s %7s %7s\n", "ranks", "MiB", "operation", "carrier",
              "ms", "CPU ms", "net MiB", "x Gloo", "x CPU");
  for (const int ranks : {2, 4}) {
    for (const size_t mib : {1, 20, 80}) hpctl::measure(ranks, mib, cases);
  }
  std::signal(SIGPIPE, SIG_IGN);
  hpctl::measure_losses(cases);
  std::printf("%s\n", nlohmann::ordered_json{{"bench", "comm"}, {"cases", cases}}.dump().c_str());
  return 0;
}
