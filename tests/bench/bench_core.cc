// SPDX-License-Identifier: Apache-2.0
// Events per second through Step alone, at 64 and at 12,500 nodes: one job is brought up, recovers
// a few times from a killed worker and a lost node, and is cancelled. Only time inside step()
// counts; bench_controller measures the same with the store.
#include <chrono>
#include <cstdio>

#include "common/base/check.h"
#include "tests/unit/core/fake_shell.h"

namespace {

using namespace hpctl;
using namespace hpctl::core;
using Clock = std::chrono::steady_clock;

struct Tally {
  int64_t events = 0;
  double seconds = 0;
  double slowest_ms = 0;
};
Tally tally;

StepResult timed_step(State& state, const Event& event) {
  const auto start = Clock::now();
  StepResult result = step(state, event);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  tally.events += 1;
  tally.seconds += seconds;
  tally.slowest_ms = std::max(tally.slowest_ms, seconds * 1e3);
  return result;
}

void run(int32_t nodes, int32_t workers_per_node, int recoveries) {
  tally = Tally{};
  FakeShell shell;
  shell.stepper = &timed_step;
  JobSpec spec = small_job("bench");
  spec.nodes = nodes;
  spec.workers_per_node = workers_per_node;
  spec.train->batch.global = spec.world_size();
  const JobId job = shell.submit(spec);
  shell.settle();
  for (int i = 0; i < recoveries; ++i) {
    shell.progress(job, static_cast<uint64_t>(i + 1) * 10);
    if (i % 2 == 0) {
      shell.exit_worker(job, nodes / 2, 0, 9, static_cast<uint64_t>(i + 1) * 10 + 5);
    } else {
      shell.feed(NodeLost{job, "n1", shell.node(job, "n1").boot_id, "its holder exited"});
    }
    shell.settle();
  }
  HP_CHECK(shell.job(job).restarts == recoveries);
  shell.feed(CancelRequested{job, 0});
  shell.settle();
  HP_CHECK(shell.state.outbox.empty());
  std::printf(
      "{\"bench\":\"core_step\",\"nodes\":%d,\"ranks\":%d,\"events\":%ld,\"events_per_s\":%.0f,"
      "\"mean_us\":%.2f,\"slowest_ms\":%.2f}\n",
      nodes, spec.world_size(), tally.events, static_cast<double>(tally.events) / tally.seconds,
      tally.seconds * 1e6 / static_cast<double>(tally.events), tally.slowest_ms);
}

}  // namespace

int main() {
  run(64, 8, 16);
  run(12'500, 8, 4);
  return 0;
}
