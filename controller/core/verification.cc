// SPDX-License-Identifier: Apache-2.0
// Who verifies the newest checkpoint before older ones are deleted, in either place:
//
//   PruneCheckpoints, MirrorCheckpoint     with `asks`: the controller names the newest one, if
//                                          older ones are to go
//   ConfirmDamage                          a node reads it, if one can be asked (second_reader.cc)
//   PruneCheckpoints, MirrorCheckpoint     with `verified`: what is older is deleted
//
// A node that is lost or late, or cannot read, is followed by another one, and after kMostReaders
// by the controller. So is a node that finds damage: only what two readers find is damage, and then
// nothing is deleted.
#include "controller/core/verification.h"

#include <utility>

#include "controller/core/rules.h"
#include "controller/core/second_reader.h"

namespace hpctl::core {

namespace {

// An absolute path is the mirror's business.
Verification& verification_of(Job& job, const ConfirmDamage& order) {
  return order.claim.checkpoint.starts_with('/') ? job.mirror.verification
                                                 : job.pruning.verification;
}

// Another reader finds damage, too.
void keep_all(Transition& t, Job& job, Verification& verification, const std::string& reader,
              const std::string& what) {
  const DamageClaim claim = std::exchange(verification, {}).claim;
  t.note("CheckpointsKept", job,
         claim.checkpoint + " is damaged for " + claim.node + " and for " + reader +
             ", older checkpoints stay: " + what,
         reader);
}

}  // namespace

bool is_to_verify(const Verification& verification) {
  return !verification.claim.checkpoint.empty();
}

bool has_met_trouble(const Verification& verification) {
  return !verification.claim.asked.empty() || !verification.claim.node.empty();
}

const Node* next_reader(Transition& t, const Job& job, const Verification& verification) {
  if (!verification.verified_by.empty()) return nullptr;
  return find_reader(t, job, verification.claim);
}

// That a node reads is told only after another one could not: each deletion has a reader.
void ask_to_verify(Transition& t, Job& job, const Verification& verification, const Node& reader) {
  const std::string& name = reader.key.name;
  const std::string text =
      name + " reads " + verification.claim.checkpoint + " before older checkpoints are deleted";
  const ConfirmDamage order{job.id, name, verification.claim, job.generation, true};
  t.issue(order, text);
  t.set_deadline(job, t.now() + reading_limit_ms(job, order));
  if (has_met_trouble(verification)) t.note("ConfirmDamage", job, text, name);
}

void verification_answered(Transition& t, Job& job, const ConfirmDamage& order,
                           DamageVerdict verdict, const std::string& what) {
  if (is_training(job)) t.set_deadline(job, 0);
  t.changed(job);
  Verification& verification = verification_of(job, order);
  DamageClaim& claim = verification.claim;
  switch (verdict) {
    case DamageVerdict::kSound:
      verification.verified_by = order.node;
      if (!claim.node.empty()) return count_false_claim(t, job, claim, order.node);
      t.result().log.clear();
      return;
    case DamageVerdict::kDamaged:
      if (!claim.node.empty()) return keep_all(t, job, verification, order.node, what);
      claim.node = order.node;
      claim.what = what;
      return;
    case DamageVerdict::kUnreadable:
      claim.asked.push_back(order.node);
      return;
  }
}

void settle_verification(Transition& t, const Job& job, const Verification& verification) {
  if (verification.claim.node.empty()) return;
  count_false_claim(t, job, verification.claim, "the controller");
}

int64_t verification_deadline(const Transition& t, const Job& job) {
  const ConfirmDamage* order = present_reading(t, job.id);
  const bool reads = order != nullptr && order->before_delete;
  return reads ? t.now() + reading_limit_ms(job, *order) : 0;
}

void forget_verifications(Transition& t, Job& job) {
  const ConfirmDamage* order = present_reading(t, job.id);
  if (order != nullptr && order->before_delete) {
    t.withdraw_all(job.id, ActionKind::kConfirmDamage);
    if (is_training(job)) t.set_deadline(job, 0);
  }
  job.pruning.verification = {};
  // A mirror that was full has not got its copy yet.
  if (std::exchange(job.mirror.verification, {}).for_room) job.mirror.due = true;
  t.changed(job);
}

}  // namespace hpctl::core
