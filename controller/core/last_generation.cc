// SPDX-License-Identifier: Apache-2.0
// How a job fails for good, or is cancelled or meets its time limit during a recovery, without a
// loss of steps. The ranks have sealed the last completed step in memory, and the newest checkpoint
// may be hundreds of steps older. So a last generation follows:
//
//   the workers stop --> what memory has is found --> the generation is recorded --> its workers
//   start, save, and die of SIGTERM, as after any stop --> the end, with the reason that it had, or
//   the queue (slurm.requeue_at_limit)
//
// They open no data and train no step, and have limits.last_checkpoint. There is one attempt:
// another fault, a node that is missing, or a directory that is away ends the job at once.
//
// If the state itself is accused (a step that is not finite, a loss that leaps), its checkpoint
// lies apart in the directory `suspect`: it is no part of the lineage, checkpoint.keep does not
// count it, and a job resumes from it only if checkpoint.resume names it.
#include "controller/core/last_generation.h"

#include <algorithm>
#include <csignal>
#include <string>

#include "common/job/duration_text.h"
#include "controller/core/membership.h"
#include "controller/core/plan.h"

namespace hpctl::core {

bool ends_for_good(const Job& job) { return !job.ending.reason.empty() && !has_ended(job.state); }

bool is_state_accused(const Job& job) {
  return job.bad_step.stopped_seq != Seq{} && job.bad_step.generation == job.memory_of;
}

namespace {

bool has_steps_to_save(const Job& job) {
  return job.spec.train && job.furthest_step > job.committed_step && !ends_for_good(job) &&
         !saves_and_leaves(job);
}

// The first worker that ends tells whether its state is in host memory. A hang comes before that.
bool is_memory_unknown(Transition& t, const Job& job) {
  if (job.restarts > 0) return false;
  for (const Node* node : t.nodes(job.id)) {
    if (t.has_ranks(node->key) && node->state != NodeState::kUp) return false;
    for (const Slot* slot : t.slots(*node)) {
      if (slot->state == SlotState::kExited) return false;
    }
  }
  return true;
}

}  // namespace

bool may_save_memory(const Job& job) { return job.in_host_memory && has_steps_to_save(job); }

void fail_for_good(Transition& t, Job& job, const std::string& reason) {
  if (may_save_memory(job) || (has_steps_to_save(job) && is_memory_unknown(t, job))) {
    return begin_ending(t, job, JobState::kFailed, reason);
  }
  end_job(t, job, JobState::kFailed, reason + describe_steps_at_risk(job));
}

std::string describe_steps_at_risk(const Job& job) {
  if (!job.spec.train || job.furthest_step <= job.committed_step) return "";
  return "; no checkpoint is known to have the steps after step " +
         std::to_string(job.committed_step);
}

void begin_ending(Transition& t, Job& job, JobState state, const std::string& reason) {
  job.ending.state = state;
  job.ending.reason = reason;
  job.ending.awaits_cause = false;  // its end is known now, and what memory has is saved first
  job.ending.seq = t.seq();
  job.saves_first = false;
  job.state = JobState::kRecovering;
  job.reason = reason + "; first the steps that only memory has are saved";
  if (job.ending.requeues) job.reason += ", then the job goes back to the queue";
  job.not_before_ms = 0;
  t.changed(job);
  t.note("LastGeneration", job, job.reason).step = job.furthest_step;
  if (job.stage != PlanStage::kStopWorkers) enter_stop_workers(t, job);
}

void save_memory_for_requeue(Transition& t, Job& job) {
  // Of the notice that Slurm gives, the end of the workers after it takes a part.
  const int64_t noticed_ms = job.spec.slurm.warning_seconds * 1000;
  const int64_t end_ms = job.limits.end_ms + kAfterGraceMs;
  const int64_t left_ms = std::max(noticed_ms - 2 * end_ms, noticed_ms / 3);
  job.ending.requeues = true;  // before the first deadline is set
  job.ending.by_ms = t.now() + left_ms;
  begin_ending(t, job, JobState::kTimeout, "the time limit is near");
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
  if (!job.ending.requeues) return end_job(t, job, job.ending.state, reason);
  job.ending = {};
  save_for_requeue(t, job, reason + "; the job goes back to the queue");
  enter_stop_workers(t, job);  // what else this event shows belongs to the end of the generation
}

std::string describe_unsaved(Transition& t, const Job& job) {
  if (!job.spec.train) return "";
  const auto left = find_in_memory(t, job);
  if (!left || left->step <= job.committed_step) return "";
  bool was_killed = false;
  for (const Node* node : t.nodes(job.id)) {
    const auto slots = t.slots(*node);
    was_killed = was_killed || std::any_of(slots.begin(), slots.end(), [](const Slot* slot) {
                   return slot->state == SlotState::kExited && slot->signal == SIGKILL;
                 });
  }
  const std::string why =
      was_killed ? "the workers did not save within " + duration_text(last_checkpoint_ms(job)) +
                       " (limits.last_checkpoint)"
                 : "the workers could not write it, see hpctl logs " + to_string(job.id);
  const std::string newest = job.committed_step == 0
                                 ? "there is none"
                                 : "the newest is of step " + std::to_string(job.committed_step);
  return "; step " + std::to_string(left->step) + " is in no checkpoint (" + newest + "): " + why;
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
