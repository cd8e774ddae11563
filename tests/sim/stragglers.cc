// SPDX-License-Identifier: Apache-2.0
// Who is slow, as the controller's table of progress sees it (controller/agents/progress.h): the
// steps that it happens to hear of, judged by the core. What is true is known here (pace.h), so who
// is named, who has to be by now, and whose slowness has to be over can be checked.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/core/straggler.h"
#include "tests/sim/cluster.h"

namespace hpctl::sim {

namespace {

constexpr double kOwnPartOfAStep = 0.15;  // the passes; the rest is the same for all ranks
// A round that has begun already, and as many as are asked for; of steps of which all are heard.
constexpr size_t kStepsUntilTold = (core::kSlowRounds + 1) * core::kRoundSteps;
// More than half of the steps of each round.
constexpr size_t kFewestSlowSteps = core::kSlowRounds * (core::kRoundSteps / 2 + 1);

bool is_eviction(const core::LogEntry& entry) {
  return entry.type == "JobRecovering" &&
         entry.cause.find("is left because it is slow") != std::string::npos;
}

}  // namespace

int64_t Cluster::own_part_ns(const Run& run, int32_t rank, uint64_t step) const {
  const JobPlan& plan = plans_.at(run.job);
  const double share = plan.pace.share(run.generation, run.homes.at(rank).name,
                                       rank % plan.spec.workers_per_node, rank, step);
  return std::llround(static_cast<double>(plan.step_ms) * kOwnPartOfAStep * share * 1e6);
}

// All wait for the slowest.
int64_t Cluster::next_step_ms(const Run& run) const {
  const JobPlan& plan = plans_.at(run.job);
  if (!plan.pace.is_drawn) return plan.step_ms;
  int64_t slowest_ns = 0;
  for (const int32_t rank : run.alive) {
    slowest_ns = std::max(slowest_ns, own_part_ns(run, rank, run.step + 1));
  }
  const double others_ms = static_cast<double>(plan.step_ms) * (1 - kOwnPartOfAStep);
  return std::llround(others_ms) + slowest_ns / 1'000'000;
}

// By rank, of those that are slow at present.
std::map<int32_t, double> Cluster::slow_ranks(const Run& run) const {
  const JobPlan& plan = plans_.at(run.job);
  std::map<int32_t, double> slow;
  for (const auto& [rank, home] : run.homes) {
    const double times = plan.pace.slowness(home.name, rank % plan.spec.workers_per_node, run.step);
    if (times > 1) slow[rank] = times;
  }
  return slow;
}

void Cluster::watch_for_stragglers(const core::Job& row, const Run& run) {
  const JobPlan& plan = plans_.at(run.job);
  const bool asked = plan.pace.is_drawn && row.spec.recovery.straggler != StragglerPolicy::kOff;
  if (!asked || controller_.is_stalled()) return;
  PaceWatch& watch = pace_watches_[row.id];
  if (watch.incarnation != controller_.incarnation() || watch.generation != run.generation) {
    watch = {};
    watch.incarnation = controller_.incarnation();
    watch.generation = run.generation;
    watch.core =
        core::StragglerWatch(row.generation, row.start_step, row.world_size(), row.stragglers);
    for (const core::Straggler& known : row.stragglers) {
      if (known.generation == row.generation) watch.named.insert(known.node);
    }
  }
  if (!core::is_training(row)) {
    watch.steps_alike = 0;
    return;
  }
  if (run.step != watch.step) hear_steps(run, watch);
  if (!watch.core.is_round_over()) return;
  const core::StragglerNews news = watch.core.judge();
  for (const core::Straggler& found : news.found) {
    check_named(run, watch, found);
    watch.named.insert(found.node);
    controller_.post(core::StragglerFound{row.id, found});
  }
  for (const std::string& node : news.over) {
    watch.named.erase(node);
    checkers_.straggler_over();
    controller_.post(core::StragglerOver{row.id, row.generation, node});
  }
  check_told(run, watch);
}

// Each rank that is heard says what it took for the newest step.
void Cluster::hear_steps(const Run& run, PaceWatch& watch) {
  watch.step = run.step;
  const auto step_ns = static_cast<uint64_t>(run.last_step_took_ms) * 1'000'000;
  for (const int32_t rank : run.alive) {
    if (!is_heard(node_of(run, rank))) continue;
    const auto own_ns = static_cast<uint64_t>(own_part_ns(run, rank, run.step));
    watch.core.add({Rank{rank}, run.step, own_ns, step_ns}, run.homes.at(rank).name);
  }
  std::map<int32_t, double> slow = slow_ranks(run);
  for (const auto& [rank, times] : slow) ++watch.slow_steps[rank];
  const bool counts = all_are_heard(run) && run.step > run.start_step + core::kWarmUpSteps;
  // In a round in which all become slow, or stop being it, nobody stands out.
  const bool are_all_slow = plans_.at(run.job).pace.are_all_slow(run.step);
  const bool is_as_before = counts && slow == watch.slow && are_all_slow == watch.are_all_slow;
  watch.steps_alike = is_as_before ? watch.steps_alike + 1 : 0;
  watch.slow = std::move(slow);
  watch.are_all_slow = are_all_slow;
}

void Cluster::check_named(const Run& run, const PaceWatch& watch, const core::Straggler& found) {
  checkers_.straggler_named();
  size_t slow_steps = 0;
  for (const auto& [rank, home] : run.homes) {
    const auto steps = watch.slow_steps.find(rank);
    const bool is_meant = home.name == found.node && (found.rank < 0 || found.rank == rank);
    if (!is_meant || steps == watch.slow_steps.end()) continue;
    slow_steps = std::max(slow_steps, steps->second);
  }
  if (slow_steps >= kFewestSlowSteps) return;
  checkers_.fail("job " + to_string(run.job) + " g" + std::to_string(run.generation) + ": " +
                 found.node + " is named and was slow in " + std::to_string(slow_steps) +
                 " steps: " + found.evidence);
}

// What has been as it is for long enough has to be known by now.
void Cluster::check_told(const Run& run, const PaceWatch& watch) {
  if (watch.steps_alike < kStepsUntilTold) return;
  const Pace& pace = plans_.at(run.job).pace;
  const std::string who = "job " + to_string(run.job) + " g" + std::to_string(run.generation);
  std::set<std::string> nodes;
  std::set<std::string> slow;
  std::set<std::string> clear;
  for (const auto& [rank, home] : run.homes) {
    nodes.insert(home.name);
    const auto times = watch.slow.find(rank);
    if (times == watch.slow.end()) continue;
    slow.insert(home.name);
    if (pace.is_clear(times->second)) clear.insert(home.name);
  }
  const bool are_few = slow.size() <= std::max<size_t>(1, nodes.size() / 4) &&
                       2 * watch.slow.size() <= run.homes.size();
  const bool is_judged = run.homes.size() >= core::kFewestRanks && pace.long_step == 0;
  for (const std::string& node : clear) {
    if (!is_judged || !are_few || watch.named.contains(node)) continue;
    checkers_.fail(who + ": " + node + " has been slow for long and is not named");
  }
  for (const std::string& node : watch.named) {
    if (slow.contains(node) || !pace.is_quiet() || !are_few) continue;
    checkers_.fail(who + ": " + node + " is as the others again, and its slowness is not over");
  }
}

// Of a decision, at the state that it left.
void Checkers::straggler_left(const core::State& state, const std::vector<core::LogEntry>& log) {
  for (const core::LogEntry& entry : log) {
    if (!is_eviction(entry)) continue;
    const core::Job& job = state.jobs.at(entry.job);
    const std::string who = "job " + to_string(job.id) + " left " + entry.node + " as slow ";
    if (job.spec.recovery.straggler != StragglerPolicy::kEvict) fail(who + "unasked");
    int lasting = 0;
    int spares = 0;
    for (auto it = state.nodes.lower_bound({job.id, ""});
         it != state.nodes.end() && it->first.job == job.id; ++it) {
      const core::Node& node = it->second;
      if (node.quarantine.by == core::kByStraggling) ++lasting;
      const bool takes = node.state == core::NodeState::kUp && node.quarantine.by.empty() &&
                         node.scheduler_note.empty() && !state.index.ranks.contains(it->first);
      spares += takes ? 1 : 0;
    }
    if (spares == 0) fail(who + "without a spare");
    if (lasting > core::kMostEvictions) fail(who + "after " + std::to_string(lasting - 1));
    const auto recent = static_cast<int64_t>(job.restart_times_ms.size());
    if (recent >= job.spec.recovery.max_restarts) fail(who + "without a restart left");
  }
}

int64_t count_evictions(const Store& store, JobId job) {
  return std::count_if(store.log().begin(), store.log().end(), [&](const core::LogEntry& entry) {
    return entry.job == job && is_eviction(entry);
  });
}

// Evictions alone end no job.
void Checkers::stragglers_borne(const Store& store, const core::Job& job) {
  const int64_t evictions = count_evictions(store, job.id);
  const bool all = evictions > 0 && evictions == job.restarts;
  if (all && job.state == core::JobState::kFailed) {
    fail("job " + to_string(job.id) + " gave up after " + std::to_string(evictions) +
         " evictions: " + job.reason);
  }
}

}  // namespace hpctl::sim
