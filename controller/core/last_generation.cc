// SPDX-License-Identifier: Apache-2.0
// How a job fails for good, or is cancelled during a recovery, without a loss of steps. The ranks
// have sealed the last completed step in memory, and the newest checkpoint may be hundreds of steps
// older. So a last generation follows:
//
//   the workers stop --> what memory has is found --> the generation is recorded --> its workers
//   start, save, and die of SIGTERM, as after any stop --> the end, with the reason that it had
//
// They open no data and train no step, and have limits.last_checkpoint. There is one attempt:
// another fault, a node that is missing, or a directory that is away ends the job at once.
//
// If the state itself is accused (a step that is not finite, a loss that leaps), its checkpoint
// lies apart in the directory `suspect`: it is no part of the lineage, checkpoint.keep does not
// count it, and a job resumes from it only if checkpoint.resume names it.
#include <string>

#include "controller/core/plan.h"

namespace hpctl::core {

bool ends_for_good(const Job& job) { return !job.ending.reason.empty() && !has_ended(job.state); }

bool is_state_accused(const Job& job) {
  return job.bad_step.stopped_seq != Seq{} && job.bad_step.generation == job.memory_of;
}

bool may_save_memory(const Job& job) {
  return job.spec.train && job.in_host_memory && job.furthest_step > job.committed_step &&
         !ends_for_good(job) && !saves_and_leaves(job);
}

void fail_for_good(Transition& t, Job& job, const std::string& reason) {
  if (may_save_memory(job)) return begin_ending(t, job, JobState::kFailed, reason);
  end_job(t, job, JobState::kFailed, reason);
}

void begin_ending(Transition& t, Job& job, JobState state, const std::string& reason) {
  job.ending.state = state;
  job.ending.reason = reason;
  job.ending.seq = t.seq();
  job.saves_first = false;
  job.state = JobState::kRecovering;
  job.reason = reason + "; first the steps that only memory has are saved";
  job.not_before_ms = 0;
  t.changed(job);
  t.note("LastGeneration", job, job.reason).step = job.furthest_step;
  if (job.stage != PlanStage::kStopWorkers) enter_stop_workers(t, job);
}

void conclude_for_good(Transition& t, Job& job, const std::string& obstacle) {
  std::string reason = job.ending.reason;
  if (obstacle.empty()) {
    const std::string name =
        "step-" + std::to_string(job.start_step) + ".g" + to_string(job.generation);
    reason += is_state_accused(job)
                  ? "; its state, which is suspect, is saved as " + job.spec.checkpoint.dir +
                        "/suspect/" + name + "; to go on from it, name it in checkpoint.resume"
                  : "; the last step is saved as " + name;
  } else if (job.furthest_step > job.committed_step) {
    reason += "; the steps after step " + std::to_string(job.committed_step) +
              " could not be saved: " + obstacle;
  }
  end_job(t, job, job.ending.state, reason);
}

void find_last_state(Transition& t, Job& job) {
  if (const auto missing = nodes_missing(t, job); !missing.empty()) {
    conclude_for_good(t, job, std::to_string(missing.size()) + " nodes are missing");
    return;
  }
  enter_find_checkpoint(t, job, "the job ends for good");
}

bool have_all_exited(Transition& t, const Job& job) {
  for (const Node* node : t.nodes(job.id)) {
    for (const Slot* slot : t.slots(*node)) {
      if (slot->state != SlotState::kExited) return false;
    }
  }
  return true;
}

}  // namespace hpctl::core
