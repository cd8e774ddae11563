// SPDX-License-Identifier: Apache-2.0
// The controller's two costs: events per second through Step and the store, at 64 and at 12,500
// nodes, one event per transaction and in batches, and that for the start of one generation; and
// what the heartbeats of 1,000 idle agents on real connections cost (process time and memory; the
// agents live in a process of their own).
//
//   bench_controller [agents | store | rendezvous | exits | orders ...]
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <future>
#include <set>

#include "common/base/file.h"
#include "common/worker/worker_abi.h"
#include "controller/agents/worker_order.h"
#include "controller/engine/store.h"
#include "tests/bench/idle_agents.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/core/fake_shell.h"

namespace {

using namespace hpctl;
using Clock = std::chrono::steady_clock;

// Step and store as the owner loop does, behind FakeShell's hook, which is a plain function.
struct Shop {
  Store* store = nullptr;
  size_t batch = 1;
  size_t waiting = 0;
  core::Dirty dirty;
  std::vector<StoredEntry> entries;
  int64_t events = 0;
  double seconds = 0;
  double cpu_s = 0;  // of these, what this thread computed
};
Shop shop;

double thread_cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void commit(const core::State& state) {
  const auto written = shop.store->commit(state, shop.dirty, shop.entries);
  HP_CHECK(written.ok());
  shop.dirty = {};
  shop.entries.clear();
  shop.waiting = 0;
}

core::StepResult stored_step(core::State& state, const core::Event& event) {
  const auto start = Clock::now();
  const double start_cpu_s = thread_cpu_s();
  core::StepResult result = core::step(state, event);
  shop.dirty.jobs.insert(result.dirty.jobs.begin(), result.dirty.jobs.end());
  shop.dirty.nodes.insert(result.dirty.nodes.begin(), result.dirty.nodes.end());
  shop.dirty.slots.insert(result.dirty.slots.begin(), result.dirty.slots.end());
  shop.dirty.outbox.insert(result.dirty.outbox.begin(), result.dirty.outbox.end());
  for (const auto& entry : result.log) shop.entries.push_back({0, event.wall_ms, entry});
  if (++shop.waiting >= shop.batch) commit(state);
  shop.events += 1;
  shop.cpu_s += thread_cpu_s() - start_cpu_s;
  shop.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

void run_store(int32_t nodes, size_t batch, int recoveries) {
  const TemporaryDirectory dir;
  auto store = Store::open(dir.path() + "/db", Store::Mode::kOwner);
  HP_CHECK(store.ok());
  shop = Shop{};
  shop.store = store->get();
  shop.batch = batch;
  core::FakeShell shell;
  shell.stepper = &stored_step;
  shell.checks_table = false;  // it copies all rows
  JobSpec spec = core::small_job("bench");
  spec.nodes = nodes;
  spec.workers_per_node = 8;
  spec.train->batch.global = spec.world_size();
  const JobId job = shell.submit(spec);
  shell.settle();
  for (int i = 0; i < recoveries; ++i) {
    const auto step = static_cast<uint64_t>(i + 1) * 10;
    shell.progress(job, step);
    shell.exit_worker(job, nodes / 2, 0, 9, step + 5);
    shell.settle();
  }
  commit(shell.state);
  std::printf(
      "{\"bench\":\"controller_store\",\"nodes\":%d,\"ranks\":%d,\"batch\":%zu,\"events\":%ld,"
      "\"events_per_s\":%.0f}\n",
      nodes, spec.world_size(), batch, static_cast<long>(shop.events),
      static_cast<double>(shop.events) / shop.seconds);
  std::fflush(stdout);
}

// What the owner thread computes for 12,500 agents that all wait for the next generation: from the
// search for the checkpoint until the last of them says that its workers run.
void run_rendezvous(int32_t nodes) {
  const TemporaryDirectory dir;
  auto store = Store::open(dir.path() + "/db", Store::Mode::kOwner);
  HP_CHECK(store.ok());
  shop = Shop{};
  shop.store = store->get();
  shop.batch = 256;
  core::FakeShell shell;
  shell.stepper = &stored_step;
  shell.checks_table = false;
  JobSpec spec = core::small_job("bench");
  spec.nodes = nodes;
  spec.workers_per_node = 8;
  spec.train->batch.global = spec.world_size();
  shell.submit(spec);
  shell.settle_kind("LaunchNode");
  commit(shell.state);
  const Shop before = shop;
  shell.settle();
  commit(shell.state);
  std::printf(
      "{\"bench\":\"controller_rendezvous\",\"nodes\":%d,\"ranks\":%d,\"events\":%ld,"
      "\"wall_s\":%.2f,\"cpu_s\":%.2f}\n",
      nodes, spec.world_size(), static_cast<long>(shop.events - before.events),
      shop.seconds - before.seconds, shop.cpu_s - before.cpu_s);
  std::fflush(stdout);
}

// What one killed worker costs the owner thread besides, where each of 100,000 ranks has to be told
// of: the exits of the survivors, by themselves as agents of older releases report them, or
// together, and that their nodes have no worker left.
void run_exits(int32_t nodes, bool together) {
  const TemporaryDirectory dir;
  auto store = Store::open(dir.path() + "/db", Store::Mode::kOwner);
  HP_CHECK(store.ok());
  shop = Shop{};
  shop.store = store->get();
  shop.batch = 256;
  core::FakeShell shell;
  shell.stepper = &stored_step;
  shell.checks_table = false;
  JobSpec spec = core::small_job("bench");
  spec.nodes = nodes;
  spec.workers_per_node = 8;
  spec.train->batch.global = spec.world_size();
  const JobId job = shell.submit(spec);
  shell.settle();
  shell.progress(job, 10);
  shell.seals.own = {{10, 7, 1}, {9, 7, 1}};
  shell.exit_worker(job, 0, 0, 9, 10);
  commit(shell.state);
  const Shop before = shop;
  const auto left = [&](int32_t rank, bool by_request) {
    const core::Slot& slot = shell.slot(job, rank);
    return core::WorkerExited{job,
                              slot.node,
                              shell.node(job, slot.node).boot_id,
                              Rank{rank},
                              slot.generation,
                              slot.pid,
                              kExitPeerLost,
                              0,
                              10,
                              "",
                              by_request,
                              false,
                              shell.arena_of(job, rank)};
  };
  for (int32_t first = 8; first < spec.world_size(); first += 8) {
    shell.feed(left(first, false));  // the first that lost a peer
    core::WorkersExited others;
    for (int32_t rank = first + 1; rank < first + 8; ++rank) {
      if (together) {
        others.exits.push_back(left(rank, true));
      } else {
        shell.feed(left(rank, true));
      }
    }
    if (!together) continue;
    others.job = job;
    others.node = others.exits.front().node;
    others.boot_id = others.exits.front().boot_id;
    shell.feed(std::move(others));
  }
  shell.settle_kind("StopWorkers");
  commit(shell.state);
  std::printf(
      "{\"bench\":\"controller_exits\",\"nodes\":%d,\"ranks\":%d,\"together\":%s,\"events\":%ld,"
      "\"wall_s\":%.2f,\"cpu_s\":%.2f}\n",
      nodes, spec.world_size(), together ? "true" : "false",
      static_cast<long>(shop.events - before.events), shop.seconds - before.seconds,
      shop.cpu_s - before.cpu_s);
  std::fflush(stdout);
}

// The messages that tell all nodes of a generation to start it: each made by itself, and each after
// the other with what they have in common kept.
void run_orders(int32_t nodes) {
  const TemporaryDirectory dir;
  core::FakeShell shell;
  shell.checks_table = false;
  JobSpec spec = core::small_job("bench");
  spec.nodes = nodes;
  spec.workers_per_node = 8;
  spec.train->batch.global = spec.world_size();
  shell.submit(spec);
  while (shell.open(core::ActionKind::kStartWorkers).empty()) shell.settle_one_kind();
  const HomePaths paths(dir.path());
  const RendezvousPorts ports;
  for (const bool kept : {false, true}) {
    OrderMaker maker(paths, ports);
    size_t bytes = 0;
    const double begin_s = thread_cpu_s();
    for (const core::Action* action : shell.open(core::ActionKind::kStartWorkers)) {
      const auto order = kept ? maker.make(*action, shell.state)
                              : OrderMaker(paths, ports).make(*action, shell.state);
      bytes += order.ByteSizeLong();
    }
    std::printf(
        "{\"bench\":\"controller_orders\",\"nodes\":%d,\"kept\":%s,\"bytes\":%zu,\"cpu_s\":%.2f}\n",
        nodes, kept ? "true" : "false", bytes, thread_cpu_s() - begin_s);
    std::fflush(stdout);
  }
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double resident_mib() {
  const auto text = read_file("/proc/self/statm");
  long total = 0;
  long resident = 0;
  HP_CHECK(text.ok() && std::sscanf(text->c_str(), "%ld %ld", &total, &resident) == 2);
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1048576.0;
}

void run_agents(int agents, int seconds) {
  const TemporaryDirectory dir;
  bench::IdleAgents clients(dir.path(), agents);  // forks: before anything has threads
  const double before_mib = resident_mib();
  bench::AgentServer server(dir.path(), agents);
  clients.go();
  server.wait_until_connected();
  const double cpu = cpu_seconds();
  const uint64_t heard = server.heartbeats();
  const auto start = Clock::now();
  std::promise<void> never;
  never.get_future().wait_for(std::chrono::seconds(seconds));
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf(
      "{\"bench\":\"controller_agents\",\"agents\":%d,\"seconds\":%.1f,\"heartbeats_per_s\":%.0f,"
      "\"cpu_cores\":%.3f,\"rss_mib\":%.1f,\"rss_before_mib\":%.1f}\n",
      agents, wall, static_cast<double>(server.heartbeats() - heard) / wall,
      (cpu_seconds() - cpu) / wall, resident_mib(), before_mib);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::set<std::string> wanted(argv + 1, argv + argc);
  const auto is_wanted = [&](const char* part) { return wanted.empty() || wanted.contains(part); };
  if (is_wanted("agents")) run_agents(1'000, 10);
  if (is_wanted("store")) {
    run_store(64, 1, 10);
    run_store(64, 256, 10);
    run_store(12'500, 1, 0);
    run_store(12'500, 256, 2);
  }
  if (is_wanted("rendezvous")) run_rendezvous(12'500);
  if (is_wanted("exits")) {
    run_exits(12'500, false);
    run_exits(12'500, true);
  }
  if (is_wanted("orders")) run_orders(12'500);
  return 0;
}
