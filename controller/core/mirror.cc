// SPDX-License-Identifier: Apache-2.0
// The mirror: a second place for checkpoints (checkpoint.mirror), which lags behind the first.
//
// A commit makes a copy due, and so does a new generation record. MirrorCheckpoint is ordered while
// the job is RUNNING. A recovery withdraws it, and the copy goes on with the next order. An order
// that fails is not repeated by a timer: the next commit gives another one. So a mirror that is
// full or unavailable never disturbs training.
//
// Older copies go as checkpoints of the first place do: after a node has read a newer one
// (verification.cc). So MirrorCheckpoint may be given once more, with what was verified.
//
// A search for the newest checkpoint asks the first place. It asks the mirror in two cases:
//
//   the first place answers, and lacks a     the newer of both is taken; of equal steps the first
//   checkpoint that was committed            place's. Memory that is as new is taken before.
//   the first place cannot be read for       the mirror, or memory, is taken if it has the newest
//   checkpoint.mirror.after                  committed step; otherwise the job waits on. The
//                                            generation is recorded in the mirror.
#include "controller/core/mirror.h"

#include <algorithm>
#include <utility>

#include "common/job/lineage.h"
#include "controller/core/plan.h"
#include "controller/core/rules.h"
#include "controller/core/second_reader.h"
#include "controller/core/verification.h"

namespace hpctl::core {

namespace {

bool is_behind(const Job& job) {
  const auto every = static_cast<uint64_t>(std::max<int64_t>(job.spec.checkpoint.mirror.every, 1));
  return job.committed_step >= job.mirror.step + every;
}

// The step of the copy that the mirror holds, as far as no rollback has undone it.
uint64_t without_undone(const Job& job, const CheckpointMirrored& e) {
  const UndoneSteps& undone = job.mirror.undone;
  const auto ref = parse_checkpoint_name(e.checkpoint);
  const bool may_be_undone =
      ref && undone.generation != Generation{} && ref->generation == undone.generation.value;
  return may_be_undone ? std::min(e.step, undone.step) : e.step;
}

}  // namespace

bool has_mirror(const Job& job) {
  return job.spec.train && !job.spec.checkpoint.mirror.dir.empty();
}

void want_mirror_of_checkpoint(Transition& t, Job& job) {
  if (!has_mirror(job) || !is_behind(job)) return;
  job.mirror.due = true;
  if (job.mirror.behind_since_ms == 0) job.mirror.behind_since_ms = t.now();
  t.changed(job);
}

void want_mirror_of_record(Transition& t, Job& job) {
  if (!has_mirror(job)) return;
  job.mirror.due = true;
  t.changed(job);
}

void undo_in_mirror(Transition& t, Job& job, uint64_t step) {
  if (!has_mirror(job)) return;
  UndoneSteps& undone = job.mirror.undone;
  const bool is_further = undone.generation == job.generation && undone.step < step;
  undone = {job.generation, is_further ? undone.step : step};
  job.mirror.step = std::min(job.mirror.step, step);
  want_mirror_of_record(t, job);
}

bool can_mirror(Transition& t, const Job& job) {
  if (!has_mirror(job) || !is_training(job)) return false;
  if (t.any_open(job.id, ActionKind::kMirrorCheckpoint)) return false;
  return is_to_verify(job.mirror.verification) ? !t.any_open(job.id, ActionKind::kConfirmDamage)
                                               : job.mirror.due;
}

void order_mirror(Transition& t, Job& job) {
  const Verification& verification = job.mirror.verification;
  const bool verifies = is_to_verify(verification);
  const Node* reader = verifies ? next_reader(t, job, verification) : nullptr;
  if (reader != nullptr) return ask_to_verify(t, job, verification, *reader);
  MirrorCheckpoint order{
      job.id, job.generation, {job.damaged.begin(), job.damaged.end()}, job.mirror.undone};
  std::string text = "the mirror has step " + std::to_string(job.mirror.step) + ", step " +
                     std::to_string(job.committed_step) + " is durable";
  if (!verifies) {
    order.asks = find_reader(t, job, {}) != nullptr;
  } else if (verification.verified_by.empty()) {
    text = "the controller reads " + verification.claim.checkpoint + " before older copies go";
    if (has_met_trouble(verification)) t.note("ConfirmDamage", job, text);
  } else {
    order.asks = true;
    order.for_room = verification.for_room;
    order.verified = verification.claim.checkpoint;
    order.verified_by = verification.verified_by;
    text = order.verified_by + " has verified " + order.verified;
  }
  job.mirror.due = false;
  t.changed(job);
  t.issue(std::move(order), text);
}

void finish_mirror(Transition& t, Job& job) {
  const bool is_open = t.any_open(job.id, ActionKind::kMirrorCheckpoint);
  if (is_to_verify(job.mirror.verification) && !is_open) order_mirror(t, job);
}

void mirror_failed(Transition& t, Job& job, const std::string& cause) {
  job.mirror.problem = cause;
  job.mirror.verification = {};
  t.changed(job);
  t.note("MirrorBehind", job, cause + "; tried again after the next save");
}

void withdraw_mirror(Transition& t, Job& job) {
  if (!t.any_open(job.id, ActionKind::kMirrorCheckpoint)) return;
  t.withdraw_all(job.id, ActionKind::kMirrorCheckpoint);
  job.mirror.due = true;
  t.changed(job);
}

bool may_be_in_mirror(const Job& job, const Facts::Origin& origin) {
  return has_mirror(job) && job.generation != Generation{} &&
         origin.step < std::max(job.mirror.step, job.committed_step);
}

bool may_replace_first_place(Transition& t, const Job& job) {
  return t.facts(job.id).first_place_failed && has_mirror(job) && job.generation != Generation{} &&
         job.storage_since_ms != 0 &&
         t.now() - job.storage_since_ms >= job.spec.checkpoint.mirror.after_ms;
}

bool can_do_without_mirror(const Job& job, const std::optional<FirstPlace>& first) {
  return first && !first->away && job.mirror.step == 0 && job.stage == PlanStage::kFindCheckpoint;
}

void enter_find_in_mirror(Transition& t, Job& job, const FirstPlace& first,
                          const std::string& reason) {
  t.facts(job.id).first_place_failed = false;
  enter_stage(t, job, PlanStage::kFindCheckpoint);
  const std::string text = reason + "; looking in the mirror " + job.spec.checkpoint.mirror.dir;
  // One that the search of the first place, which is away, could not settle.
  const bool has_claim = job.claim.checkpoint.starts_with('/');
  FindCheckpoint order{job.id,
                       {job.damaged.begin(), job.damaged.end()},
                       has_claim ? job.claim : DamageClaim{},
                       job.generation,
                       true,
                       first,
                       job.mirror.undone};
  order.withdrawn = job.withdrawn;
  order.job_uuid = job.submit_key;
  t.issue(std::move(order), text);
  t.note("FindCheckpoint", job, text);
}

void on(Transition& t, const CheckpointMirrored& e) {
  const Action* action = t.open<MirrorCheckpoint>(e.action);
  if (action == nullptr) {
    t.refuse(e.job, "copy " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  const MirrorCheckpoint order = std::get<MirrorCheckpoint>(action->body);
  Job& job = *t.job(e.job);
  const bool lets_go = job.mirror.undone == order.undone && e.problem.empty();
  t.close(e.action);
  const Verification before = std::exchange(job.mirror.verification, {});
  if (!e.to_verify.empty()) {
    job.mirror.verification.claim.checkpoint = e.to_verify;
    job.mirror.verification.for_room = e.for_room;
  }
  job.mirror.problem = e.problem;
  if (!e.checkpoint.empty()) job.mirror.step = lets_go ? e.step : without_undone(job, e);
  if (lets_go) job.mirror.undone = {};
  if (e.problem.empty()) job.mirror.behind_since_ms = is_behind(job) ? t.now() : 0;
  t.changed(job);
  if (e.problem.empty() && e.copied_bytes == 0) t.result().log.clear();
  const bool settles = order.verified.empty() && !e.verified.empty();
  if (settles) settle_verification(t, job, before);
  // The last checkpoint of a job that has finished meanwhile.
  const bool goes_on = job.mirror.due || is_to_verify(job.mirror.verification);
  if (job.state == JobState::kFinished && goes_on) order_mirror(t, job);
}

}  // namespace hpctl::core
