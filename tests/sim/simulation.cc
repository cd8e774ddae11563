// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/simulation.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>
#include <vector>

#include "tests/sim/cluster.h"

namespace hpctl::sim {

namespace {

constexpr int64_t kSettleMs = 60'000;  // after the last job ended: nodes end, outbox empties

std::vector<JobPlan> draw_plans(uint64_t seed, Rng& rng, Swarm& swarm) {
  std::vector<JobPlan> plans = draw_jobs(rng, swarm);
  draw_mirrors(seed, swarm, plans);
  draw_paces(seed, plans);
  return plans;
}

class Simulation {
 public:
  Simulation(uint64_t seed, bool trace, Mutant mutant)
      : rng_(mix64(seed)),
        swarm_(draw_swarm(rng_)),
        plans_(draw_plans(seed, rng_, swarm_)),
        controller_(agenda_, rng_, swarm_, checkers_),
        cluster_(agenda_, rng_, swarm_, plans_, checkers_, controller_) {
    swarm_.mutant = mutant;
    if (!trace) return;
    controller_.trace = [this](const std::string& line) {
      std::printf("%8.3f job %s\n", static_cast<double>(agenda_.now()) / 1000.0, line.c_str());
    };
  }

  SeedResult run() {
    controller_.start(cluster_);
    for (const JobPlan& plan : plans_) submit(plan);
    schedule_faults();
    run_until(kFaultPhaseMs, [] { return false; });
    controller_.stop_faults();
    cluster_.heal();
    faults_ = false;
    run_until(kFaultPhaseMs + kLivenessMs, [this] { return all_ended(); });
    run_until(agenda_.now() + kSettleMs, [this] { return is_quiet(); });
    judge();
    return result();
  }

 private:
  // The client repeats itself with the same key until it has an answer.
  void submit(const JobPlan& plan) {
    agenda_.after(std::max<int64_t>(1, plan.submit_at_ms), [this, &plan] { try_submit(plan); });
  }
  void try_submit(const JobPlan& plan) {
    if (accepted_.contains(plan.spec.name)) return;
    controller_.post(core::JobSubmitted{plan.spec, 1000, plan.spec.name, {}, {}, plan.backend},
                     [this, &plan](const core::StepResult& result) {
                       if (!result.submitted) {
                         checkers_.fail("submit refused: " + result.refusal);
                         return;
                       }
                       accepted_.insert(plan.spec.name);
                       if (plan.cancel_at_ms != 0) cancel(*result.submitted, plan.cancel_at_ms);
                     });
    agenda_.after(700, [this, &plan] { try_submit(plan); });
  }
  void cancel(JobId job, int64_t at_ms) {
    agenda_.after(std::max<int64_t>(1, at_ms - agenda_.now()), [this, job] {
      const auto row = controller_.state().jobs.find(job);
      if (row != controller_.state().jobs.end() && core::has_ended(row->second.state)) return;
      controller_.post(core::CancelRequested{job, 1000});
      cancel(job, agenda_.now() + 1'000);
    });
  }

  void every(int64_t mean_ms, std::function<void()> fault) {
    if (mean_ms == 0) return;
    const auto wait = static_cast<int64_t>(1 + rng_.below(2 * static_cast<uint64_t>(mean_ms)));
    agenda_.after(wait, [this, mean_ms, fault = std::move(fault)] {
      if (!faults_) return;
      fault();
      every(mean_ms, fault);
    });
  }
  void schedule_faults() {
    every(swarm_.worker_kill, [this] { cluster_.kill_worker(false); });
    every(swarm_.worker_error, [this] { cluster_.kill_worker(true); });
    every(swarm_.worker_hang, [this] { cluster_.hang_worker(); });
    every(swarm_.agent_crash, [this] { cluster_.crash_agent(); });
    every(swarm_.holder_crash, [this] { cluster_.crash_holder(); });
    every(swarm_.partition,
          [this] { cluster_.cut_node(static_cast<int64_t>(100 + rng_.below(40'000))); });
    every(swarm_.busy, [this] { cluster_.busy_node(); });
    every(swarm_.quarantine, [this] { cluster_.quarantine_node(); });
    every(swarm_.hardware_fault, [this] { cluster_.break_hardware(); });
    every(swarm_.drain, [this] { cluster_.drain_node(); });
    every(swarm_.lose, [this] { cluster_.lose_checkpoints(); });
    every(swarm_.first_away, [this] { take_away(true); });
    every(swarm_.mirror_away, [this] { take_away(false); });
    every(swarm_.stream_break, [this] { cluster_.break_stream(); });
    every(swarm_.controller_kill,
          [this] { controller_.kill(static_cast<int64_t>(100 + rng_.below(8'000))); });
    every(swarm_.controller_stall,
          [this] { controller_.stall(static_cast<int64_t>(1'000 + rng_.below(5'000))); });
    every(swarm_.burst, [this] { burst(); });
  }
  void take_away(bool is_first) {
    cluster_.take_place_away(static_cast<int64_t>(100 + rng_.below(40'000)), is_first);
  }
  void burst() {
    for (uint64_t n = 2 + rng_.below(12); n > 0; --n) {
      agenda_.after(static_cast<int64_t>(rng_.below(30)), [this] {
        switch (rng_.below(5)) {
          case 0:
            return cluster_.crash_agent();
          case 1:
            return cluster_.crash_holder();
          case 2:
            return controller_.kill(static_cast<int64_t>(50 + rng_.below(2'000)));
          default:
            return cluster_.kill_worker(false);
        }
      });
    }
  }

  bool all_ended() {
    if (!controller_.knows_its_jobs() || accepted_.size() != plans_.size()) return false;
    for (const auto& [id, job] : controller_.state().jobs) {
      if (!core::has_ended(job.state)) return false;
    }
    return true;
  }
  std::string what_is_left() {
    for (const auto& [id, job] : controller_.state().jobs) {
      if (core::has_ended(job.state)) continue;
      return "job " + to_string(id) + " is " + core::to_string(job.state) + ", " +
             core::to_string(job.stage) + ": " + job.reason;
    }
    return std::to_string(accepted_.size()) + " of " + std::to_string(plans_.size()) +
           " jobs were accepted, the controller is " + (controller_.is_up() ? "up" : "down");
  }
  bool is_quiet() {
    return controller_.state().outbox.empty() && cluster_.all_gone() &&
           !core::next_deadline(controller_.state());
  }
  void run_until(int64_t until_ms, const std::function<bool()>& done) {
    uint64_t tasks = 0;
    while (checkers_.violation().empty()) {
      if (++tasks % 64 == 0 && done()) return;
      if (!agenda_.run_next(until_ms)) return;
    }
  }
  void judge() {
    if (!checkers_.violation().empty()) return;
    if (!all_ended()) checkers_.fail("the healed cluster does not converge: " + what_is_left());
    checkers_.everything_ended(controller_.state());
    if (!cluster_.all_gone()) checkers_.fail("a holder outlives its job");
    const std::string forgotten = controller_.store().difference(controller_.state());
    if (!forgotten.empty()) checkers_.fail("not marked dirty: " + forgotten);
    checkers_.causes_are_present(controller_.store());
    for (const auto& [id, job] : controller_.state().jobs) {
      checkers_.budgets_held(controller_.store(), job);
      const Places& places = cluster_.places(id);
      checkers_.failure_justified(controller_.store(), job, places.first, places.mirror,
                                  places.search);
      checkers_.history_complete(job, cluster_.plan(id), cluster_.whole_directory(id));
      checkers_.stragglers_borne(controller_.store(), job);
      checkers_.explained(controller_.store(), job);
      checkers_.bad_steps_told(controller_.store(), job,
                               !swarm_.reorder && swarm_.late_message == 0);
      const bool undisturbed = swarm_.training_is_undisturbed();
      if (undisturbed && job.state != core::JobState::kFinished) {
        checkers_.fail("job " + to_string(id) + " did not finish undisturbed: " + job.reason);
      } else if (undisturbed && job.restarts != count_evictions(controller_.store(), id)) {
        checkers_.fail("job " + to_string(id) + " was restarted without need: " + job.fault);
      }
    }
  }
  SeedResult result() {
    SeedResult r;
    r.violation = checkers_.violation();
    r.digest = controller_.digest();
    r.events = controller_.events();
    r.simulated_ms = agenda_.now();
    r.from_memory = checkers_.from_memory();
    r.from_mirror = checkers_.from_mirror();
    r.in_mirror = checkers_.in_mirror();
    r.copies = std::count_if(
        controller_.store().log().begin(), controller_.store().log().end(),
        [](const core::LogEntry& entry) { return entry.type == "CheckpointMirrored"; });
    r.hangs = checkers_.hangs();
    r.plain_hangs = checkers_.plain_hangs();
    r.stragglers = checkers_.stragglers();
    r.stragglers_over = checkers_.stragglers_over();
    for (const auto& [id, job] : controller_.state().jobs) {
      r.finished += job.state == core::JobState::kFinished ? 1 : 0;
      r.failed += job.state == core::JobState::kFailed ? 1 : 0;
      r.out_of_checkpoints += job.reason.starts_with(kNoneIsLeft) ? 1 : 0;
      r.cancelled += job.state == core::JobState::kCancelled ? 1 : 0;
      r.restarts += job.restarts;
      r.evictions += count_evictions(controller_.store(), id);
    }
    return r;
  }

  Rng rng_;
  Agenda agenda_;
  Swarm swarm_;
  std::vector<JobPlan> plans_;
  Checkers checkers_;
  SimController controller_;
  Cluster cluster_;
  std::set<std::string> accepted_;
  bool faults_ = true;
};

}  // namespace

SeedResult run_seed(uint64_t seed, bool trace, Mutant mutant) {
  return Simulation(seed, trace, mutant).run();
}

std::string describe(const SeedResult& sum) {
  const auto number = [](auto value) { return std::to_string(value); };
  return "sim: jobs " + number(sum.finished) + " finished, " + number(sum.failed) + " failed (" +
         number(sum.out_of_checkpoints) + " out of checkpoints), " + number(sum.cancelled) +
         " cancelled; " + number(sum.restarts) + " restarts, " + number(sum.from_memory) +
         " of them from memory, " + number(sum.from_mirror) + " from the mirror; " +
         number(sum.hangs) + " hangs, " + number(sum.plain_hangs) +
         " of them plain\nsim: " + number(sum.copies) + " copies to mirrors, " +
         number(sum.in_mirror) + " generations recorded there; " + number(sum.stragglers) +
         " stragglers named, " + number(sum.stragglers_over) + " over again, " +
         number(sum.evictions) + " nodes left for it\n";
}

}  // namespace hpctl::sim
