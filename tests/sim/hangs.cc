// SPDX-License-Identifier: Apache-2.0
// Ranks that hang, as the controller's table of progress sees them (controller/agents/progress.h):
// what each rank last said in this world, judged by the core. A silent node says nothing of its
// ranks, so what is known of them is old. A rank computes until its part of a step is over, and
// then waits in a collective for the others; one that hangs computes for ever, waits for a file, is
// stopped, or is in that collective too.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/cluster.h"

namespace hpctl::sim {

namespace {

constexpr int64_t kLookEveryMs = 500;
constexpr size_t kRecentSteps = 32;
// What a hang may take to be found beyond its limit: until a look, and its reports before that.
constexpr int64_t kLookSlackMs = 3 * kLookEveryMs;

// Whom the core is to blame for these hangs, and when at the latest.
struct Suspects {
  Suspects(const Run& run, const Hung& hung) {
    const auto stopped = count(hung, HangKind::kStopped);
    const auto alike = count(hung, HangKind::kInCollective);
    const bool some_arrive = hung.size() < run.alive.size() || alike > 0;
    for (const auto& [rank, kind] : hung) {
      const bool is_one =
          stopped > 0 ? kind == HangKind::kStopped : kind != HangKind::kInCollective && some_arrive;
      if (is_one) nodes.insert(run.homes.at(rank).name);
    }
    are_told_apart = !nodes.empty() || alike == hung.size();
    some_are_stopped = stopped > 0 && stopped < run.alive.size();
    is_plain = nodes.size() == 1 && count(hung, HangKind::kComputes) + alike == hung.size();
  }

  static size_t count(const Hung& hung, HangKind kind) {
    return static_cast<size_t>(std::count_if(
        hung.begin(), hung.end(), [kind](const auto& rank) { return rank.second == kind; }));
  }
  std::string only_node() const { return nodes.size() == 1 ? *nodes.begin() : ""; }
  int64_t limit_ms(const core::JobSight& facts) const {
    if (facts.limit_ms > 0) return facts.limit_ms;
    if (some_are_stopped) return 1'000;
    const int64_t usual_ms = std::max<int64_t>(60'000, 3 * facts.median_step_ns / 1'000'000);
    if (!is_plain || facts.plain_hangs > 3 || facts.slowest_step_ns == 0) return usual_ms;
    return std::min(usual_ms, std::max<int64_t>(5'000 << facts.plain_hangs,
                                                3 * facts.slowest_step_ns / 1'000'000));
  }

  std::set<std::string> nodes;
  bool are_told_apart = false;
  bool some_are_stopped = false;
  bool is_plain = false;
};

bool moved(const core::RankSight& before, const core::RankSight& now) {
  return before.step != now.step || before.collective != now.collective ||
         before.open_collectives != now.open_collectives || before.phase != now.phase ||
         before.computing != now.computing;
}

}  // namespace

// The first step of a generation, and the absence of steps.
void Cluster::watch_job(JobId job) {
  agenda_.after(kLookEveryMs, [this, job] {
    watch_job(job);
    const auto it = controller_.state().jobs.find(job);
    if (!controller_.is_up() || it == controller_.state().jobs.end()) return;
    const core::Job& row = it->second;
    if (core::has_ended(row.state) || row.generation == Generation{}) return;
    if (plans_.at(job).is_command) return;  // its steps are unknown
    const Run& run = run_of(job, row.generation.value);
    if (run.job == JobId{}) return;
    if (row.state != core::JobState::kRunning && run.step > run.start_step) {
      controller_.post(core::GenerationProgressed{job, row.generation, run.step});
    }
    watch_for_hangs(row, run);
    watch_for_stragglers(row, run);
  });
}

void Cluster::watch_for_hangs(const core::Job& row, const Run& run) {
  HangWatch& watch = hang_watches_[row.id];
  const bool is_known = watch.incarnation == controller_.incarnation();
  if (!is_known || watch.generation != run.generation) {
    const core::PlainHangs former = is_known ? watch.plain_hangs : core::PlainHangs{};
    watch = {};
    watch.plain_hangs = former;
    watch.incarnation = controller_.incarnation();
    watch.generation = run.generation;
    watch.step = run.start_step;
    watch.moved_ms = agenda_.now();
  }
  const bool running = core::is_training(row);
  if (running && !watch.running) watch.moved_ms = watch.hung_since_ms = agenda_.now();
  watch.running = running;
  if (controller_.is_stalled()) {  // when it goes on, everybody gets a fresh deadline
    watch.moved_ms = watch.hung_since_ms = agenda_.now();
    for (auto& [rank, heard_ms] : watch.heard_ms) heard_ms = agenda_.now();
    for (auto& [rank, sight] : watch.ranks) sight.still_ms = 0;
    return;
  }
  hear(run, watch);
  if (!running || watch.judged) return;
  const core::JobSight facts = look_at(row, watch);
  const core::HangVerdict verdict = core::judge_hang(facts);
  check_verdict(run, watch, facts, verdict);
  if (verdict.kind == core::HangVerdict::Kind::kNothing) return;
  const bool plain = verdict.kind == core::HangVerdict::Kind::kHangsPlainly;
  if (plain) watch.plain_hangs.add(agenda_.now());
  watch.judged = true;
  checkers_.hang_found(plain);
  controller_.post(
      core::HangDetected{row.id, row.generation, verdict.node, verdict.rank, verdict.evidence});
}

bool Cluster::is_heard(const SimNode& node) const {
  return node.holder_alive && node.agent_alive && node.bound != 0 && node.stream == node.bound &&
         !is_silent(node);
}

core::RankSight Cluster::say(const Run& run, int32_t rank) const {
  const SimNode& node = node_of(run, rank);
  const SimWorker& worker = node.workers.at(rank);
  core::RankSight sight;
  sight.rank = Rank{rank};
  sight.node = node.key.name;
  sight.pid = worker.pid;
  sight.step = run.step;
  sight.collective = run.collectives;
  sight.phase = run.finished ? WorkerPhase::kFinished : WorkerPhase::kTraining;
  sight.computing = !run.finished;
  sight.process_state = worker.hang == HangKind::kComputes   ? "R"
                        : worker.hang == HangKind::kInKernel ? "D"
                        : worker.hang == HangKind::kStopped  ? "T"
                                                             : "S";
  const bool arrives = !worker.hangs() || worker.hang == HangKind::kInCollective;
  if (run.stuck_since_ms != 0 && arrives) {
    sight.collective += 1;
    sight.open_collectives = 1;
  }
  return sight;
}

void Cluster::hear(const Run& run, HangWatch& watch) {
  for (const int32_t rank : run.alive) {
    if (!is_heard(node_of(run, rank))) continue;
    core::RankSight now = say(run, rank);
    const auto before = watch.ranks.find(rank);
    if (before != watch.ranks.end() && !moved(before->second, now)) {
      now.still_ms = before->second.still_ms +
                     std::min(agenda_.now() - watch.heard_ms.at(rank), core::kMostPerReportMs);
    }
    if (before != watch.ranks.end() && now.step < before->second.step) {
      watch.step = now.step;
      watch.moved_ms = agenda_.now();
    }
    if (now.step > watch.step) {
      watch.step = now.step;
      watch.moved_ms = agenda_.now();
      watch.step_ms.push_back(run.last_step_took_ms);
      if (watch.step_ms.size() > kRecentSteps) watch.step_ms.pop_front();
    }
    watch.ranks[rank] = std::move(now);
    watch.heard_ms[rank] = agenda_.now();
  }
  if (watch.ranks.empty()) return;
  const auto fewest = std::min_element(
      watch.ranks.begin(), watch.ranks.end(),
      [](const auto& a, const auto& b) { return a.second.collective < b.second.collective; });
  if (fewest->second.collective > watch.fewest_collectives) watch.moved_ms = agenda_.now();
  watch.fewest_collectives = fewest->second.collective;
}

core::JobSight Cluster::look_at(const core::Job& row, const HangWatch& watch) const {
  core::JobSight facts;
  facts.trains = row.spec.train.has_value();
  facts.limit_ms = row.spec.recovery.hang_timeout_ms;
  facts.world_size = row.world_size();
  facts.step = watch.step;
  facts.still_ms = agenda_.now() - watch.moved_ms;
  std::vector<int64_t> steps(watch.step_ms.begin(), watch.step_ms.end());
  std::sort(steps.begin(), steps.end());
  if (!steps.empty()) {
    facts.median_step_ns = steps[steps.size() / 2] * 1'000'000;
    facts.slowest_step_ns = steps.back() * 1'000'000;
  }
  facts.plain_hangs = watch.plain_hangs.count(agenda_.now());
  for (const auto& [rank, sight] : watch.ranks) {
    facts.ranks.push_back(sight);
    facts.ranks.back().unheard_ms = agenda_.now() - watch.heard_ms.at(rank);
  }
  return facts;
}

bool Cluster::all_are_heard(const Run& run) const {
  return std::all_of(run.homes.begin(), run.homes.end(), [&](const auto& home) {
    return run.alive.contains(home.first) && is_heard(nodes_.at(home.second));
  });
}

// Those that hang may be before what the others wait for.
bool Cluster::any_hangs(const Run& run) const {
  return std::any_of(run.alive.begin(), run.alive.end(),
                     [&](int32_t rank) { return node_of(run, rank).workers.at(rank).hangs(); });
}

// The ranks for which the others wait, where everything can be seen.
Hung Cluster::hung_in_sight(const Run& run) const {
  Hung hung;
  if (run.stuck_since_ms == 0 || !all_are_heard(run)) return hung;
  for (const int32_t rank : run.alive) {
    const HangKind kind = node_of(run, rank).workers.at(rank).hang;
    if (kind != HangKind::kNone) hung[rank] = kind;
  }
  return hung;
}

// It holds the others up: a rank there hangs otherwise than they do, is gone, or cannot be reached.
bool Cluster::is_guilty(const Run& run, const std::string& name) const {
  const core::NodeKey key{run.job, name};
  const SimNode& node = nodes_.at(key);
  if (run.cut_off.contains(key)) return true;
  return std::any_of(run.homes.begin(), run.homes.end(), [&](const auto& home) {
    if (home.second != key) return false;
    if (!run.alive.contains(home.first)) return true;
    const HangKind hang = node.workers.at(home.first).hang;
    return hang != HangKind::kNone && hang != HangKind::kInCollective;
  });
}

// What is true of this world, whatever was seen of it.
void Cluster::check_verdict(const Run& run, HangWatch& watch, const core::JobSight& facts,
                            const core::HangVerdict& verdict) {
  const std::string who = "job " + to_string(run.job) + " g" + std::to_string(run.generation);
  const bool found = verdict.kind != core::HangVerdict::Kind::kNothing;
  if (found && !verdict.node.empty() && !is_guilty(run, verdict.node)) {
    checkers_.fail(who + ": " + verdict.node +
                   " is blamed for what others do: " + verdict.evidence);
  }
  const Hung hung = hung_in_sight(run);
  if (hung != watch.hung || hung.empty()) watch.hung_since_ms = agenda_.now();
  watch.hung = hung;
  if (hung.empty()) {
    const bool goes_on = run.stuck_since_ms == 0 && !run.finished && !run.broken;
    if (found && all_are_heard(run) && goes_on && !any_hangs(run)) {
      checkers_.fail(who + " hangs although it goes on: " + verdict.evidence);
    }
    return;
  }
  const Suspects suspects(run, hung);
  if (found && suspects.are_told_apart && verdict.node != suspects.only_node()) {
    checkers_.fail(who + ": not \"" + suspects.only_node() + "\" is blamed: " + verdict.evidence);
  }
  const int64_t hung_for_ms = agenda_.now() - watch.hung_since_ms;
  if (!found && hung_for_ms > suspects.limit_ms(facts) + kLookSlackMs) {
    checkers_.fail(who + " has hung for " + std::to_string(hung_for_ms) + " ms and is not found");
  }
}

}  // namespace hpctl::sim
