// SPDX-License-Identifier: Apache-2.0
// The real hpcontroller under the load of many agents on one machine, which all dial at once: how
// long until all have registered, until a generation's orders have reached all, until a killed
// worker's generation is stopped and the next one started, until half of them, whose connections
// broke, are back beside the others, until a controller that was killed has them all again; and
// what their heartbeats and a scrape cost. The agents are this program (fleet_agents.h),
// which shares the machine: what it computes is told beside what the controller does. Ends with 1
// where something did not come about.
//
//   bench_fleet [--one-by-one] [AGENTS...]   (FleetManners)
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/net/host_port.h"
#include "common/process/descriptor_limit.h"
#include "tests/bench/figures.h"
#include "tests/bench/fleet_agents.h"
#include "tests/bench/process_usage.h"
#include "tests/fault/job_cluster.h"
#include "tests/support/http_get.h"
#include "tests/unit/core/fake_shell.h"

namespace {

using namespace hpctl;
using bench::FleetAgents;
using bench::Usage;
using bench::usage_of;
using Clock = FleetAgents::Clock;

constexpr auto kStep = std::chrono::milliseconds(2'000);
constexpr int kTimeoutMs = 120'000;
constexpr int kSteadySeconds = 15;
constexpr int kSettleMs = 5'000;
constexpr int kScrapes = 21;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Bench {
 public:
  Bench(int agents, const bench::FleetManners& manners)
      : agents_(agents),
        cluster_(make_spec(agents)),
        controller_(cluster_.start_controller("n0", {"--metrics", "127.0.0.1:0"})),
        fleet_(cluster_.job_dir(), cluster_.job(), agents, kStep, manners) {}

  // False at the first thing that does not come about; nothing goes on after the destructor.
  bool run() {
    fleet_.connect();
    if (!measure("registration", [this] { return fleet_.welcomed(); }) ||
        !measure("first generation", [this] { return fleet_.started(1); }) || !is_running()) {
      return false;
    }
    steady();
    scrape();
    fleet_.kill_worker(agents_ / 2);
    if (!measure("a worker was killed: all stopped", [this] { return fleet_.stopped(1); }) ||
        !measure("and all started again", [this] { return fleet_.started(2); }) || !is_running()) {
      return false;
    }
    const int half = agents_ / 2;
    fleet_.cut(half);
    if (!test::eventually([=, this] { return fleet_.welcomed() <= agents_ - half; }, kTimeoutMs) ||
        !measure("half of the connections broke: all are back",
                 [this] { return fleet_.welcomed(); })) {
      return false;
    }
    cluster_.kill_controller(1);
    if (!test::eventually([this] { return fleet_.welcomed() == 0; }, kTimeoutMs)) return false;
    controller_ = cluster_.start_controller("n0", {"--metrics", "127.0.0.1:0"});
    return measure("another controller, registration", [this] { return fleet_.welcomed(); });
  }

 private:
  static JobSpec make_spec(int agents) {
    JobSpec spec = core::small_job("fleet");
    spec.checkpoint.dir.clear();
    spec.nodes = agents;
    spec.workers_per_node = bench::kWorkersPerNode;
    spec.train->batch.global = spec.world_size();
    spec.train->steps = 1'000'000;
    return spec;
  }

  bool is_running() const {
    const bool runs =
        cluster_.wait_for_status([](const auto& s) { return s.state() == "RUNNING"; }, kTimeoutMs);
    if (!runs) std::fprintf(stderr, "the job is not RUNNING after %d s\n", kTimeoutMs / 1'000);
    return runs;
  }

  // Until `count` is all agents.
  bool measure(const char* phase, const std::function<int()>& count) {
    const double cpu_s = usage_of(controller_).cpu_s;
    const double own_cpu_s = usage_of(::getpid()).cpu_s;
    const uint64_t dialled = fleet_.dialled();
    const uint64_t lost = fleet_.lost();
    const auto begin = Clock::now();
    const bool all = test::eventually([&] { return count() == agents_; }, kTimeoutMs);
    std::printf(
        "{\"bench\":\"fleet\",\"agents\":%d,\"ranks\":%d,\"phase\":\"%s\",\"wall_s\":%.2f,"
        "\"controller_cpu_s\":%.2f,\"agents_cpu_s\":%.2f,\"attempts\":%lu,\"lost\":%lu}\n",
        agents_, agents_ * bench::kWorkersPerNode, phase, seconds_since(begin),
        usage_of(controller_).cpu_s - cpu_s, usage_of(::getpid()).cpu_s - own_cpu_s,
        fleet_.dialled() - dialled, fleet_.lost() - lost);
    std::fflush(stdout);
    for (const auto& [why, times] : fleet_.take_failures()) {
      std::fprintf(stderr, "%d times: %s\n", times, why.c_str());
    }
    if (!all) std::fprintf(stderr, "%s: %d of %d agents\n", phase, count(), agents_);
    return all;
  }

  // Once they beat as they will go on to; few agents all do from the first.
  void steady() const {
    test::eventually([this] { return fleet_.seldom() > 0; }, kSettleMs);
    const Usage before = usage_of(controller_);
    const double own_cpu_s = usage_of(::getpid()).cpu_s;
    const uint64_t sent = fleet_.heartbeats();
    const auto begin = Clock::now();
    ::sleep(kSteadySeconds);
    const double wall_s = seconds_since(begin);
    const Usage after = usage_of(controller_);
    std::printf(
        "{\"bench\":\"fleet\",\"agents\":%d,\"ranks\":%d,\"phase\":\"training\",\"seldom\":%d,"
        "\"heartbeats_per_s\":%.0f,\"controller_cores\":%.2f,\"agents_cores\":%.2f,"
        "\"controller_mib\":%.0f}\n",
        agents_, agents_ * bench::kWorkersPerNode, fleet_.seldom(),
        static_cast<double>(fleet_.heartbeats() - sent) / wall_s,
        (after.cpu_s - before.cpu_s) / wall_s, (usage_of(::getpid()).cpu_s - own_cpu_s) / wall_s,
        after.rss_mib);
    std::fflush(stdout);
  }

  // As Prometheus would, while the agents' heartbeats come.
  void scrape() const {
    const auto record = read_file(cluster_.job_dir() + "/metrics-targets.json");
    HP_CHECK(record.ok());
    const std::string target = nlohmann::json::parse(*record)[0]["targets"][0];
    const uint16_t port = HostPort::parse(target).value().port;
    std::vector<double> took_ms;
    size_t bytes = 0;
    for (int i = 0; i < kScrapes; ++i) {
      const auto begin = Clock::now();
      bytes = http_get(port, "/metrics").size();
      took_ms.push_back(seconds_since(begin) * 1'000);
    }
    HP_CHECK(bytes > 0);
    std::printf(
        "{\"bench\":\"fleet\",\"agents\":%d,\"ranks\":%d,\"phase\":\"scrape\",\"median_ms\":%.0f,"
        "\"worst_ms\":%.0f,\"kbytes\":%zu,\"controller_mib\":%.0f}\n",
        agents_, agents_ * bench::kWorkersPerNode, hpctl::testing::median(took_ms),
        hpctl::testing::at_share(took_ms, 1), bytes / 1'000, usage_of(controller_).rss_mib);
    std::fflush(stdout);
  }

  const int agents_;
  test::JobCluster cluster_;
  pid_t controller_;
  FleetAgents fleet_;
};

}  // namespace

int main(int argc, char** argv) {
  raise_descriptor_limit();
  std::vector<int> sizes;
  bench::FleetManners manners;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--one-by-one") {
      manners.one_by_one = true;
    } else {
      sizes.push_back(std::atoi(argv[i]));
    }
  }
  if (sizes.empty()) sizes = {500, 1'000, 2'000, 4'000};
  return std::all_of(sizes.begin(), sizes.end(),
                     [&](int agents) { return Bench(agents, manners).run(); })
             ? 0
             : 1;
}
