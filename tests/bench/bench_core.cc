// SPDX-License-Identifier: Apache-2.0
// What a job costs the pure core, phase by phase, at several sizes: registration of all nodes, the
// first generation, recovery from a killed worker and from a lost node with a spare, a successor
// that meets a running job, the end. Only time inside step() counts; bench_controller measures the
// same with the store. Where the time per event grows with the number of nodes, something looks at
// all of them for each.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "tests/unit/core/fake_shell.h"

namespace {

using namespace hpctl;
using namespace hpctl::core;

constexpr int32_t kWorkersPerNode = 8;
constexpr int kRecoveries = 4;
constexpr int64_t kBetweenFaultsMs = 3'600'000;  // none is quarantined, no budget is used up

struct Tally {
  int64_t events = 0;
  double seconds = 0;
  double slowest_ms = 0;
};
Tally tally;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

StepResult timed_step(State& state, const Event& event) {
  const double start = cpu_seconds();
  StepResult result = step(state, event);
  const double seconds = cpu_seconds() - start;
  tally.events += 1;
  tally.seconds += seconds;
  tally.slowest_ms = std::max(tally.slowest_ms, seconds * 1e3);
  return result;
}

void print_phase(const char* phase, int32_t nodes) {
  std::printf(
      "{\"bench\":\"core_step\",\"phase\":\"%s\",\"nodes\":%d,\"ranks\":%d,\"events\":%ld,"
      "\"cpu_ms\":%.1f,\"mean_us\":%.2f,\"slowest_ms\":%.2f}\n",
      phase, nodes, nodes * kWorkersPerNode, static_cast<long>(tally.events), tally.seconds * 1e3,
      tally.seconds * 1e6 / static_cast<double>(std::max<int64_t>(tally.events, 1)),
      tally.slowest_ms);
  std::fflush(stdout);
  tally = Tally{};
}

// The machines' power fails: one after the other, and all come back.
void lose_all(FakeShell& shell, JobId job) {
  shell.now_ms += kBetweenFaultsMs;
  std::vector<std::pair<std::string, std::string>> lives;
  for (const auto& [key, node] : shell.state.nodes) lives.emplace_back(key.name, node.boot_id);
  for (const auto& [name, boot_id] : lives) {
    shell.feed(NodeLost{job, name, boot_id, "no heartbeat"});
  }
  shell.settle();
  while (shell.job(job).stage != PlanStage::kNone) {  // the back-off between two launches
    shell.pass(1'000);
    shell.settle();
  }
}

// A successor without rows meets a generation whose workers all live.
void adopt(const FakeShell& former, JobId job) {
  JobAdopted adopted;
  adopted.job = job;
  adopted.spec = former.job(job).spec;
  adopted.generation = former.job(job).generation;
  adopted.cause = "its controller did not answer";
  for (const auto& [key, node] : former.state.nodes) adopted.nodes.push_back(key.name);
  for (const auto& [key, slot] : former.state.slots) {
    adopted.members.emplace_back(key.rank, slot.node);
  }
  FakeShell shell;
  shell.stepper = &timed_step;
  shell.checks_table = false;
  shell.feed(std::move(adopted));
  for (const auto& [key, node] : former.state.nodes) {
    AgentRegistered registered;
    registered.job = job;
    registered.node = key.name;
    registered.boot_id = node.boot_id;
    registered.generation_seen = former.job(job).generation;
    if (const auto ranks = former.state.index.ranks.find(key);
        ranks != former.state.index.ranks.end()) {
      for (const Rank rank : ranks->second) {
        registered.workers.push_back({rank, registered.generation_seen, 7});
      }
    }
    shell.feed(std::move(registered));
  }
  HP_CHECK(shell.job(job).state == JobState::kRunning);
}

void run(int32_t nodes) {
  tally = Tally{};
  FakeShell shell;
  shell.stepper = &timed_step;
  shell.checks_table = false;  // it copies all rows
  JobSpec spec = small_job("bench");
  spec.nodes = nodes;
  spec.spares = 8;
  spec.workers_per_node = kWorkersPerNode;
  spec.train->batch.global = spec.world_size();
  const JobId job = shell.submit(spec);
  shell.settle_kind("LaunchNode");
  print_phase("registration", nodes);
  shell.settle();
  uint64_t at_step = 10;
  shell.progress(job, at_step);
  print_phase("first generation", nodes);
  for (int i = 0; i < kRecoveries; ++i) {
    shell.now_ms += kBetweenFaultsMs;
    shell.exit_worker(job, nodes / 2 + i * kWorkersPerNode, 0, 9, at_step + 5);
    shell.settle();
    shell.progress(job, at_step += 10);
  }
  print_phase("4 killed workers", nodes);
  for (int i = 0; i < kRecoveries; ++i) {
    shell.now_ms += kBetweenFaultsMs;
    const std::string name = local_node_name(i + 1);
    shell.feed(NodeLost{job, name, shell.node(job, name).boot_id, "its holder exited"});
    shell.settle();
    shell.progress(job, at_step += 10);
  }
  print_phase("4 lost nodes", nodes);
  lose_all(shell, job);
  at_step += 10;
  shell.progress(job, at_step);
  print_phase("all nodes lost", nodes);
  HP_CHECK(shell.job(job).restarts == 2 * kRecoveries + 1);
  HP_CHECK(shell.job(job).state == JobState::kRunning);
  adopt(shell, job);
  print_phase("a successor takes over", nodes);
  shell.feed(CancelRequested{job, 0});
  shell.settle();
  HP_CHECK(shell.state.outbox.empty());
  print_phase("end", nodes);
}

}  // namespace

int main() {
  for (const int32_t nodes : {64, 1'250, 5'000, 12'500}) run(nodes);
  return 0;
}
