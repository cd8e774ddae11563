// SPDX-License-Identifier: Apache-2.0
// What one seed breaks, and how hard. Each seed disables some kinds of fault and weighs the others,
// so that rare combinations get seeds of their own instead of drowning in noise.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/rng.h"
#include "controller/core/types.h"
#include "tests/sim/mutant.h"
#include "tests/sim/pace.h"

namespace hpctl::sim {

inline constexpr int32_t kClusterNodes = 64;
inline constexpr int64_t kFaultPhaseMs = 60'000;  // then everything is healed
inline constexpr int64_t kLivenessMs = 900'000;   // and must converge within this

struct Swarm {
  // Mean time between faults of the whole cluster, in ms; 0 = this kind is off.
  int64_t worker_kill = 0;
  int64_t worker_error = 0;  // a worker exits with code 1
  int64_t worker_hang = 0;
  int64_t agent_crash = 0;
  int64_t holder_crash = 0;
  int64_t partition = 0;
  int64_t busy = 0;  // an agent gets no time for a while; its holder answers probes
  int64_t stream_break = 0;
  int64_t controller_kill = 0;   // at any time
  int64_t controller_stall = 0;  // the loop stands still for a while
  int64_t quarantine = 0;        // an operator quarantines a node for a while
  int64_t hardware_fault = 0;    // a node is found broken
  int64_t drain = 0;             // the scheduler drains a node for a while
  int64_t lose = 0;              // a person deletes checkpoints of a job
  int64_t first_away = 0;        // a job's checkpoint directory cannot be used for a while
  int64_t mirror_away = 0;       // likewise its mirror
  int64_t burst = 0;             // several faults of random kinds within a few ms
  // Probabilities.
  double controller_crash_at_boundary = 0;  // per store boundary
  double damaged_checkpoint = 0;            // per commit
  double damaged_copy = 0;                  // per copy to a mirror
  double false_claim = 0;                   // per load: a rank calls a sound checkpoint damaged
  double unreadable = 0;                    // per load: a rank cannot read, and exits
  double disk_full = 0;                     // per save: the first attempt
  double takes_directory = 0;               // per search: another job has taken the directory
  double late_commit = 0;                   // a commit lands although its generation is over
  double late_message = 0;                  // of a broken stream: arrives nevertheless
  double duplicate = 0;                     // per message
  double launch_fails = 0;
  double launch_silent = 0;  // the holder starts and dies before it registers
  double slow_stop = 0;      // per order: the workers take up to 90 s to die
  double start_fails = 0;
  double directory_fails = 0;
  double racing_controller = 0;  // per generation record
  double lost_database = 0;      // per end of a controller: its successor starts without rows
  double requeue_refused = 0;
  double cancel = 0;         // per job
  double poison_step = 0;    // per job: one step always crashes
  double bad_step = 0;       // per step: the trainer does not apply it
  double deep_rollback = 0;  // per rollback: a save is undone
  bool reorder = false;      // messages of one stream overtake each other
  bool scheduler_sees_exit = true;
  bool scheduler_fences = true;   // ends a holder that is in the way of a launch
  bool scheduler_adopts = false;  // or takes it for the one it was to launch
  int64_t agent_restart_ms_max = 500;
  int64_t orphan_timeout_ms = 300'000;  // an agent without a controller ends its node
  int64_t delay_ms_max = 20;
  int64_t heartbeat_timeout_ms = 10'000;
  int64_t hang_timeout_ms = 0;  // 0 = auto
  Mutant mutant = Mutant::kNone;

  // True when nothing in this seed may make a generation end early.
  bool training_is_undisturbed() const;
};
Swarm draw_swarm(Rng& rng);

// A job of the workload.
struct JobPlan {
  JobSpec spec;
  core::Backend backend;
  int64_t submit_at_ms = 0;
  int64_t cancel_at_ms = 0;  // 0 = never
  int64_t step_ms = 0;
  bool is_command = false;  // runs for steps * step_ms, without checkpoints or progress
  uint64_t steps = 0;
  uint64_t checkpoint_every = 0;
  uint64_t poison_step = 0;  // 0 = none
  Pace pace;
};
std::vector<JobPlan> draw_jobs(Rng& rng, const Swarm& swarm);
// Of half of the seeds, by a generator of its own: jobs with a mirror, and what its places suffer.
// A controller that loses its rows there, or a directory that another job takes, is for the others.
void draw_mirrors(uint64_t seed, Swarm& swarm, std::vector<JobPlan>& plans);
// Of two thirds of the seeds, by a generator of its own.
void draw_paces(uint64_t seed, std::vector<JobPlan>& plans);

}  // namespace hpctl::sim
