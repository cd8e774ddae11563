// SPDX-License-Identifier: Apache-2.0
// When older checkpoints are deleted. Only the controller deletes, in the lane of the checkpoint
// directory, so a deletion and a search for the newest checkpoint never overlap.
//
// A commit makes an order due, and so does a save that found the disk full. The order is given
// while the job is RUNNING: after FindCheckpoint it waits for the first step of the new generation.
// A recovery withdraws it, and the engine stops reading and deleting when the next FindCheckpoint
// comes. An order that fails is not repeated by a timer: the next commit, or the next save that
// finds the disk full, gives another one.
//
// Before the deletion the newest checkpoint is verified, by a node if one can be asked
// (verification.cc).
#include "controller/core/prune.h"

#include <utility>

#include "controller/core/rules.h"
#include "controller/core/second_reader.h"
#include "controller/core/verification.h"

namespace hpctl::core {

namespace {

bool is_superseded_long_enough(const Transition& t, const Job& job) {
  return job.pruning.recorded_ms > 0 &&
         t.now() - job.pruning.recorded_ms >= job.limits.directory_ms;
}

// The deletion, or first the question of what is to be verified.
void begin_prune(Transition& t, Job& job) {
  const bool for_room = std::exchange(job.pruning.for_room, false);
  job.pruning.due = false;
  t.changed(job);
  PruneCheckpoints order{job.id, job.generation, for_room, is_superseded_long_enough(t, job)};
  order.asks = find_reader(t, job, {}) != nullptr;
  t.issue(std::move(order), for_room
                                ? "a save found the disk full"
                                : "step " + std::to_string(job.committed_step) + " is durable");
}

// Without a verdict of a node, the controller verifies.
void delete_older(Transition& t, Job& job) {
  const Verification& verification = job.pruning.verification;
  PruneCheckpoints order{job.id, job.generation, verification.for_room,
                         is_superseded_long_enough(t, job)};
  std::string text = "the controller reads " + verification.claim.checkpoint +
                     " before older checkpoints are deleted";
  if (!verification.verified_by.empty()) {
    order.verified = verification.claim.checkpoint;
    order.verified_by = verification.verified_by;
    text = order.verified_by + " has verified " + order.verified;
  } else if (has_met_trouble(verification)) {
    t.note("ConfirmDamage", job, text);
  }
  t.issue(std::move(order), text);
}

}  // namespace

bool can_prune(Transition& t, const Job& job) {
  return job.spec.train && (job.pruning.due || is_to_verify(job.pruning.verification)) &&
         is_training(job) && !t.any_open(job.id, ActionKind::kPruneCheckpoints) &&
         !t.any_open(job.id, ActionKind::kConfirmDamage);
}

void order_prune(Transition& t, Job& job) {
  const Verification& verification = job.pruning.verification;
  if (!is_to_verify(verification)) return begin_prune(t, job);
  const Node* reader = next_reader(t, job, verification);
  return reader == nullptr ? delete_older(t, job) : ask_to_verify(t, job, verification, *reader);
}

void finish_prune(Transition& t, Job& job) {
  const bool is_open = t.any_open(job.id, ActionKind::kPruneCheckpoints);
  if (is_to_verify(job.pruning.verification) && !is_open) order_prune(t, job);
}

void prune_failed(Transition& t, Job& job, const std::string& cause) {
  job.pruning.verification = {};
  t.changed(job);
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
  const Action* action = t.open<PruneCheckpoints>(e.action);
  if (action == nullptr) {
    t.refuse(e.job, "deletion " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  const PruneCheckpoints order = std::get<PruneCheckpoints>(action->body);
  Job& job = *t.job(e.job);
  t.close(e.action);
  t.changed(job);
  const Verification before = std::exchange(job.pruning.verification, {});
  if (!e.to_verify.empty()) {
    job.pruning.verification.claim.checkpoint = e.to_verify;
    job.pruning.verification.for_room = order.for_room;
  }
  if (!e.verified.empty()) job.pruning.verified_wall_ms = t.event().wall_ms;
  if (e.deleted.empty() && e.problem.empty()) t.result().log.clear();
  const bool settles = order.verified.empty() && !e.verified.empty();
  if (settles) settle_verification(t, job, before);
  // The last checkpoint of a job that has finished meanwhile.
  const bool goes_on = job.pruning.due || is_to_verify(job.pruning.verification);
  if (job.state == JobState::kFinished && goes_on) order_prune(t, job);
}

}  // namespace hpctl::core
