// SPDX-License-Identifier: Apache-2.0
// When older checkpoints are deleted. Only the controller deletes, in the lane of the checkpoint
// directory, so a deletion and a search for the newest checkpoint never overlap.
//
// A commit makes an order due, and so does a save that found the disk full. The order is given
// while the job is RUNNING: after FindCheckpoint it waits for the first step of the new generation.
// A recovery withdraws it, and the engine stops reading and deleting when the next FindCheckpoint
// comes. An order that fails is not repeated by a timer: the next commit, or the next save that
// finds the disk full, gives another one.
#include "controller/core/plan.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

bool is_superseded_long_enough(const Transition& t, const Job& job) {
  return job.pruning.recorded_ms > 0 &&
         t.now() - job.pruning.recorded_ms >= job.limits.directory_ms;
}

}  // namespace

bool can_prune(Transition& t, const Job& job) {
  return job.spec.train && job.pruning.due && is_training(job) &&
         !t.any_open(job.id, ActionKind::kPruneCheckpoints);
}

void order_prune(Transition& t, Job& job) {
  const bool for_room = job.pruning.for_room;
  job.pruning.due = job.pruning.for_room = false;
  t.changed(job);
  t.issue(PruneCheckpoints{job.id, job.generation, for_room, is_superseded_long_enough(t, job)},
          for_room ? "a save found the disk full"
                   : "step " + std::to_string(job.committed_step) + " is durable");
}

void prune_failed(Transition& t, Job& job, const std::string& cause) {
  t.note("CheckpointsKept", job, cause + "; tried again after the next save");
}

void on(Transition& t, const CheckpointRoomNeeded& e) {
  Job* job = t.job(e.job);
  if (job == nullptr || has_ended(job->state) || e.generation != job->generation) {
    t.refuse(e.job, "a full disk of a generation that is not the present one");
    return;
  }
  job->pruning.due = job->pruning.for_room = true;
  t.changed(*job);
}

void on(Transition& t, const CheckpointsPruned& e) {
  if (t.open<PruneCheckpoints>(e.action) == nullptr) {
    t.refuse(e.job, "deletion " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  Job& job = *t.job(e.job);
  t.close(e.action);
  if (!e.verified.empty()) {
    job.pruning.verified_wall_ms = t.event().wall_ms;
    t.changed(job);
  }
  if (e.deleted.empty() && e.problem.empty()) t.result().log.clear();
  // The last checkpoint of a job that has finished meanwhile.
  if (job.state == JobState::kFinished && job.pruning.due) order_prune(t, job);
}

}  // namespace hpctl::core
