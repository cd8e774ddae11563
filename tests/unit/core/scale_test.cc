// SPDX-License-Identifier: Apache-2.0
// No event may cost a look at every node: what a job costs the core grows with its nodes, not with
// their square. Compared is the CPU time per event of a small job and of one with eight times the
// nodes: about the same where this holds (caches: up to 2), eight times where it does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

constexpr int32_t kFew = 300;
constexpr int32_t kMany = 8 * kFew;
constexpr double kMostTimes = 4;
constexpr int kRepetitions = 3;  // the best of them, because other programs run as well

double spent_s = 0;  // inside step()
int64_t spent_events = 0;

double cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

StepResult timed_step(State& state, const Event& event) {
  const double begin = cpu_s();
  StepResult result = step(state, event);
  spent_s += cpu_s() - begin;
  spent_events += 1;
  return result;
}

// A job of so many nodes and a few spares, none of which has come.
JobId submit(FakeShell& shell, int32_t nodes) {
  shell.checks_table = false;
  shell.stepper = &timed_step;
  JobSpec spec = small_job("scale");
  spec.nodes = nodes;
  spec.spares = 4;
  spec.train->batch.global = spec.world_size();
  return shell.submit(spec);
}

void bring_up(FakeShell& shell, JobId job) {
  shell.settle();
  shell.progress(job, 10);
}

void bring_up_and_recover(FakeShell& shell, JobId job) {
  bring_up(shell, job);
  shell.exit_worker(job, 5, 0, 9, 10);
  shell.settle();
  shell.progress(job, 20);
}

// As bring_up(), and then every machine loses its power.
void lose_all(FakeShell& shell, JobId job) {
  bring_up(shell, job);
  const auto nodes = shell.state.nodes;
  for (const auto& [key, node] : nodes) {
    shell.feed(NodeLost{job, key.name, node.boot_id, "no heartbeat"});
  }
  shell.settle();
  while (shell.job(job).stage != PlanStage::kNone) {
    shell.pass(1'000);  // the back-off of nodes that were lost while they came
    shell.settle();
  }
  shell.progress(job, 30);
  EXPECT_EQ(shell.job(job).state, JobState::kRunning);
}

double seconds_per_event(int32_t nodes, void (*scenario)(FakeShell&, JobId)) {
  double best = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    spent_s = 0;
    spent_events = 0;
    FakeShell shell;
    scenario(shell, submit(shell, nodes));
    const double mean = spent_s / static_cast<double>(spent_events);
    best = i == 0 ? mean : std::min(best, mean);
  }
  return best;
}

void expect_linear(void (*scenario)(FakeShell&, JobId)) {
  const double few = seconds_per_event(kFew, scenario);
  const double many = seconds_per_event(kMany, scenario);
  EXPECT_LT(many, kMostTimes * few) << few * 1e6 << " us per event with " << kFew << " nodes, "
                                    << many * 1e6 << " with " << kMany;
}

TEST(Scale, RegistrationBesideSparesIsLinear) { expect_linear(bring_up); }

TEST(Scale, RecoveryIsLinear) { expect_linear(bring_up_and_recover); }

TEST(Scale, TheLossOfAllNodesIsLinear) { expect_linear(lose_all); }

}  // namespace
}  // namespace hpctl::core
