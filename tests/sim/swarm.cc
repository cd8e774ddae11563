// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/swarm.h"

#include <algorithm>
#include <array>
#include <string>

namespace hpctl::sim {

namespace {

constexpr uint64_t kMirrorSalt = 0x6d6972726f72;

// Off in a third of the seeds, otherwise between often and rarely.
int64_t draw_interval(Rng& rng, int64_t often_ms, int64_t rarely_ms) {
  if (rng.below(3) == 0) return 0;
  return often_ms + static_cast<int64_t>(rng.below(static_cast<uint64_t>(rarely_ms - often_ms)));
}

double draw_probability(Rng& rng, double most) {
  return rng.below(2) == 0 ? 0.0 : rng.uniform() * most;
}

void draw_policy(Rng& rng, JobPlan& plan) {
  plan.backend.requeues = rng.below(2) == 0;
  plan.backend.replaces = rng.below(2) == 0;
  auto& actions = plan.spec.recovery.on_node_loss;
  actions.clear();
  for (const char* action : {kOnNodeLossSpare, kOnNodeLossShrink, kOnNodeLossRequeue}) {
    if (rng.below(4) != 0) actions.emplace_back(action);
  }
  if (actions.empty() || rng.below(4) == 0) actions.emplace_back(kOnNodeLossWait);
}

TrainSpec train_spec(const JobPlan& plan) {
  TrainSpec train;
  train.model = *model_preset("tiny");
  train.data.path = "/data";
  train.data.seq_len = 16;
  train.batch.micro = 1;
  train.batch.global = plan.spec.world_size();
  train.steps = static_cast<int64_t>(plan.steps);
  return train;
}

}  // namespace

bool Swarm::training_is_undisturbed() const {
  return worker_kill == 0 && worker_error == 0 && worker_hang == 0 && holder_crash == 0 &&
         partition == 0 && burst == 0 && controller_stall == 0 && late_message == 0 &&
         quarantine == 0 && hardware_fault == 0 && drain == 0 && lost_database == 0 &&
         launch_fails == 0 && launch_silent == 0 && start_fails == 0 && directory_fails == 0 &&
         cancel == 0 && poison_step == 0 && bad_step == 0 && damaged_checkpoint == 0 &&
         false_claim == 0 && unreadable == 0 && takes_directory == 0 && duplicate == 0 &&
         !reorder && lose == 0 && first_away == 0;
}

Swarm draw_swarm(Rng& rng) {
  Swarm s;
  s.agent_crash = draw_interval(rng, 800, 20'000);
  s.stream_break = draw_interval(rng, 800, 20'000);
  s.busy = draw_interval(rng, 500, 10'000);
  s.controller_kill = draw_interval(rng, 3'000, 30'000);
  s.controller_crash_at_boundary = draw_probability(rng, 0.01);
  s.racing_controller = draw_probability(rng, 0.2);
  s.late_commit = draw_probability(rng, 0.5);
  s.delay_ms_max = 1 + static_cast<int64_t>(rng.below(100));
  s.scheduler_sees_exit = rng.below(4) != 0;
  s.scheduler_fences = rng.below(4) != 0;
  s.scheduler_adopts = rng.below(3) == 0;
  s.hang_timeout_ms = rng.below(2) == 0 ? 0 : 10'000;
  if (rng.below(10) == 0) return s;  // training must go on undisturbed
  if (rng.below(8) == 0) {           // only hangs disturb it: elsewhere others are mostly first
    s.worker_hang = 2'000 + static_cast<int64_t>(rng.below(8'000));
    return s;
  }
  s.agent_restart_ms_max = rng.below(2) == 0 ? 1'500 : 4'000;
  s.orphan_timeout_ms = 30'000;
  s.heartbeat_timeout_ms = rng.below(2) == 0 ? 2'000 : 10'000;
  s.worker_kill = draw_interval(rng, 1'000, 20'000);
  s.worker_error = draw_interval(rng, 3'000, 30'000);
  s.worker_hang = draw_interval(rng, 4'000, 30'000);
  s.holder_crash = draw_interval(rng, 2'000, 20'000);
  s.partition = draw_interval(rng, 2'000, 20'000);
  s.controller_stall = draw_interval(rng, 5'000, 30'000);
  s.burst = draw_interval(rng, 8'000, 40'000);
  s.damaged_checkpoint = draw_probability(rng, 0.4);
  s.late_message = draw_probability(rng, 0.5);
  s.duplicate = draw_probability(rng, 0.2);
  s.launch_fails = draw_probability(rng, 0.1);
  s.launch_silent = draw_probability(rng, 0.05);
  s.start_fails = draw_probability(rng, 0.02);
  s.slow_stop = draw_probability(rng, 0.05);
  s.directory_fails = draw_probability(rng, 0.1);
  s.cancel = draw_probability(rng, 0.2);
  s.poison_step = draw_probability(rng, 0.2);
  s.bad_step = draw_probability(rng, 0.05);
  s.reorder = rng.below(4) == 0;
  s.quarantine = draw_interval(rng, 3'000, 30'000);
  s.hardware_fault = draw_interval(rng, 10'000, 60'000);
  s.lost_database = draw_probability(rng, 0.6);
  s.requeue_refused = draw_probability(rng, 1.0);
  s.drain = draw_interval(rng, 3'000, 30'000);
  s.false_claim = draw_probability(rng, 0.3);
  s.unreadable = draw_probability(rng, 0.2);
  s.disk_full = draw_probability(rng, 0.3);
  if (rng.below(4) == 0) s.takes_directory = rng.uniform() * 0.1;
  return s;
}

std::vector<JobPlan> draw_jobs(Rng& rng, const Swarm& swarm) {
  std::vector<JobPlan> plans;
  int32_t nodes_left = kClusterNodes;
  while (nodes_left > 0) {
    JobPlan plan;
    plan.spec.name = "job-" + std::to_string(plans.size());
    plan.spec.nodes = std::min<int32_t>(nodes_left, 1 + static_cast<int32_t>(rng.below(16)));
    plan.spec.workers_per_node = 1 + static_cast<int32_t>(rng.below(3));
    if (rng.below(2) == 0) plan.spec.spares = static_cast<int32_t>(rng.below(4));
    if (rng.below(2) == 0) {
      plan.spec.min_nodes =
          1 + static_cast<int32_t>(rng.below(static_cast<uint64_t>(plan.spec.nodes)));
    }
    draw_policy(rng, plan);
    nodes_left -= plan.spec.all_nodes();
    plan.spec.checkpoint.dir = "/ckpt/" + plan.spec.name;
    if (rng.below(5) == 0) plan.spec.checkpoint.resume = "none";
    plan.spec.checkpoint.keep = 1 + static_cast<int64_t>(rng.below(3));
    plan.spec.recovery.max_restarts = 3 + static_cast<int64_t>(rng.below(20));
    plan.spec.recovery.window_ms = 30'000 + static_cast<int64_t>(rng.below(600'000));
    plan.spec.recovery.heartbeat_timeout_ms = swarm.heartbeat_timeout_ms;
    plan.spec.recovery.hang_timeout_ms = swarm.hang_timeout_ms;
    plan.submit_at_ms = static_cast<int64_t>(rng.below(10'000));
    if (rng.chance(swarm.cancel)) {
      plan.cancel_at_ms = plan.submit_at_ms + static_cast<int64_t>(rng.below(60'000));
    }
    plan.step_ms = 200 + static_cast<int64_t>(rng.below(800));
    plan.steps = 10 + rng.below(60);
    plan.checkpoint_every = 3 + rng.below(10);
    if (rng.chance(swarm.poison_step)) plan.poison_step = 1 + rng.below(plan.steps);
    plan.is_command = rng.below(6) == 0;
    // A command that lasts a minute each time has only its budget to end it: too long to wait for.
    if (plan.is_command) plan.poison_step = std::min<uint64_t>(plan.poison_step, 30);
    if (plan.is_command) {
      plan.spec.command = {"a-program"};
    } else {
      plan.spec.train = train_spec(plan);
      constexpr std::array kStrategies = {Strategy::kFull, Strategy::kNoShard, Strategy::kHybrid};
      plan.spec.train->strategy = kStrategies[rng.below(kStrategies.size())];
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

void draw_mirrors(uint64_t seed, Swarm& swarm, std::vector<JobPlan>& plans) {
  Rng rng(mix64(seed ^ kMirrorSalt));
  const bool disturbs = !swarm.training_is_undisturbed() && swarm.worker_kill > 0;
  if (disturbs) swarm.lose = draw_interval(rng, 5'000, 60'000);
  if (rng.below(2) == 0) return;
  if (disturbs) swarm.lose = draw_interval(rng, 500, 5'000);
  swarm.lost_database = 0;
  swarm.takes_directory = 0;
  swarm.mirror_away = draw_interval(rng, 5'000, 40'000);
  if (disturbs) swarm.first_away = draw_interval(rng, 1'000, 10'000);
  if (disturbs) swarm.damaged_copy = draw_probability(rng, 0.3);
  if (disturbs) swarm.deep_rollback = rng.uniform();
  for (JobPlan& plan : plans) {
    if (plan.is_command || rng.below(4) == 0) continue;
    MirrorSpec& mirror = plan.spec.checkpoint.mirror;
    mirror.dir = "/mirror/" + plan.spec.name;
    mirror.every = static_cast<int64_t>(rng.below(3) * plan.checkpoint_every);
    mirror.after_ms = 1'000 + static_cast<int64_t>(rng.below(10'000));
    if (rng.below(2) == 0) plan.spec.recovery.snapshot.replicas = 0;
  }
}

void draw_paces(uint64_t seed, std::vector<JobPlan>& plans) {
  Rng rng(mix64(~seed));
  if (rng.below(3) == 0) return;
  for (JobPlan& plan : plans) {
    constexpr std::array kPolicies = {StragglerPolicy::kOff, StragglerPolicy::kWarn,
                                      StragglerPolicy::kEvict, StragglerPolicy::kEvict};
    plan.spec.recovery.straggler = kPolicies[rng.below(kPolicies.size())];
    if (plan.is_command) continue;
    if (rng.below(2) == 0) plan.steps += 60;  // who is slow is named after some twenty
    plan.pace = draw_pace(rng, plan.spec.all_nodes(), plan.spec.workers_per_node, plan.steps);
  }
}

}  // namespace hpctl::sim
