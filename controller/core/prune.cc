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
// The reader that verifies the newest checkpoint is a node if one can be asked (second_reader.cc):
//
//   PruneCheckpoints, asks     the controller names the newest checkpoint, if older ones are to go
//   ConfirmDamage              a node reads it
//   PruneCheckpoints           what is older than the verified checkpoint is deleted
//
// A node that is lost or late, or cannot read, is followed by another one, and after kMostReaders
// by the controller. So is a node that finds damage: only what two readers find is damage, and then
// nothing is deleted.
#include "controller/core/prune.h"

#include <utility>

#include "controller/core/rules.h"
#include "controller/core/second_reader.h"

namespace hpctl::core {

namespace {

bool is_superseded_long_enough(const Transition& t, const Job& job) {
  return job.pruning.recorded_ms > 0 &&
         t.now() - job.pruning.recorded_ms >= job.limits.directory_ms;
}

bool is_to_verify(const Job& job) { return !job.pruning.verification.claim.checkpoint.empty(); }

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

bool has_met_trouble(const DamageClaim& claim) {
  return !claim.asked.empty() || !claim.node.empty();
}

// That a node reads is told only after another one could not: each deletion has a reader.
void ask_to_verify(Transition& t, Job& job, const Node& reader) {
  const DamageClaim& claim = job.pruning.verification.claim;
  const std::string& name = reader.key.name;
  const std::string text =
      name + " reads " + claim.checkpoint + " before older checkpoints are deleted";
  const ConfirmDamage order{job.id, name, claim, job.generation, true};
  t.issue(order, text);
  t.set_deadline(job, t.now() + reading_limit_ms(job, order));
  if (has_met_trouble(claim)) t.note("ConfirmDamage", job, text, name);
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
  } else if (has_met_trouble(verification.claim)) {
    t.note("ConfirmDamage", job, text);
  }
  t.issue(std::move(order), text);
}

// Another reader finds damage, too.
void keep_all(Transition& t, Job& job, const std::string& reader, const std::string& what) {
  const DamageClaim claim = std::exchange(job.pruning.verification, {}).claim;
  t.note("CheckpointsKept", job,
         claim.checkpoint + " is damaged for " + claim.node + " and for " + reader +
             ", older checkpoints stay: " + what,
         reader);
}

}  // namespace

bool can_prune(Transition& t, const Job& job) {
  return job.spec.train && (job.pruning.due || is_to_verify(job)) && is_training(job) &&
         !t.any_open(job.id, ActionKind::kPruneCheckpoints) &&
         !t.any_open(job.id, ActionKind::kConfirmDamage);
}

void order_prune(Transition& t, Job& job) {
  if (!is_to_verify(job)) return begin_prune(t, job);
  const Verification& verification = job.pruning.verification;
  const Node* reader =
      verification.verified_by.empty() ? find_reader(t, job, verification.claim) : nullptr;
  return reader == nullptr ? delete_older(t, job) : ask_to_verify(t, job, *reader);
}

void verification_answered(Transition& t, Job& job, const ConfirmDamage& order,
                           DamageVerdict verdict, const std::string& what) {
  if (is_training(job)) t.set_deadline(job, 0);
  t.changed(job);
  Verification& verification = job.pruning.verification;
  DamageClaim& claim = verification.claim;
  switch (verdict) {
    case DamageVerdict::kSound:
      verification.verified_by = order.node;
      if (!claim.node.empty()) return count_false_claim(t, job, claim, order.node);
      t.result().log.clear();
      return;
    case DamageVerdict::kDamaged:
      if (!claim.node.empty()) return keep_all(t, job, order.node, what);
      claim.node = order.node;
      claim.what = what;
      return;
    case DamageVerdict::kUnreadable:
      claim.asked.push_back(order.node);
      return;
  }
}

int64_t verification_deadline(const Transition& t, const Job& job) {
  const ConfirmDamage* order = present_reading(t, job.id);
  const bool reads = order != nullptr && order->before_delete;
  return reads ? t.now() + reading_limit_ms(job, *order) : 0;
}

void forget_verification(Transition& t, Job& job) {
  const ConfirmDamage* order = present_reading(t, job.id);
  if (order != nullptr && order->before_delete) {
    t.withdraw_all(job.id, ActionKind::kConfirmDamage);
    if (is_training(job)) t.set_deadline(job, 0);
  }
  job.pruning.verification = {};
  t.changed(job);
}

void finish_verification(Transition& t, Job& job) {
  if (is_to_verify(job) && !t.any_open(job.id, ActionKind::kPruneCheckpoints)) order_prune(t, job);
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
  // A node found damage, and the controller does not.
  const bool settles = order.verified.empty() && !e.verified.empty();
  if (settles && !before.claim.node.empty()) {
    count_false_claim(t, job, before.claim, "the controller");
  }
  // The last checkpoint of a job that has finished meanwhile.
  const bool goes_on = job.pruning.due || is_to_verify(job);
  if (job.state == JobState::kFinished && goes_on) order_prune(t, job);
}

}  // namespace hpctl::core
