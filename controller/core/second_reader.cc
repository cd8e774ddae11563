// SPDX-License-Identifier: Apache-2.0
// Who reads again what a worker called damaged, before an older checkpoint is taken (decision
// 0112). verification.cc has the same nodes read the newest checkpoint before older ones are
// deleted.
//
// The worker's machine may be the one that is at fault, and the controller may run there. So a
// search that follows a claim first asks another node: one that is up and was not asked yet, and,
// if there is a choice, not the controller's. Its verdict settles the claim. A node that is lost or
// late is passed over. One that cannot read waits for storage with the job, and another one is
// asked next. Where there is none, or kMostReaders were asked, the controller reads, with the
// search itself; after that the first node is asked again.
//
// A claim may be about an absolute path: a checkpoint in the mirror, or the one that
// checkpoint.resume names.
#include "controller/core/second_reader.h"

#include <algorithm>

#include "controller/core/membership.h"
#include "controller/core/plan.h"
#include "controller/core/quarantine.h"
#include "controller/core/rules.h"
#include "controller/core/verification.h"

namespace hpctl::core {

namespace {

bool may_read(const DamageClaim& claim, const Node& node) {
  const bool was_asked =
      std::find(claim.asked.begin(), claim.asked.end(), node.key.name) != claim.asked.end();
  return node.state == NodeState::kUp && node.connected && node.confirms_damage &&
         node.quarantine.by.empty() && node.false_claims < kMaxFalseClaims &&
         node.key.name != claim.node && !was_asked;
}

// The second time the job leaves the node, if a spare is up.
void leave_false_claimer(Transition& t, Job& job, const DamageClaim& claim) {
  Node* node = t.node(job.id, claim.node);
  if (node == nullptr) return;
  if (node->false_claims < kMaxFalseClaims || !node->quarantine.by.empty() ||
      !t.has_ranks(node->key) || !has_spare(t, job)) {
    return;
  }
  const int64_t wall = t.event().wall_ms;
  quarantine(
      t, job, *node,
      {"hpctl",
       "it called sound checkpoints damaged " + std::to_string(node->false_claims) + " times",
       claim.what, false, wall, wall + kQuarantineForMs});
  enter_wait_nodes(t, job);
}

}  // namespace

int64_t reading_limit_ms(const Job& job, const ConfirmDamage& order) {
  const bool reads_much =
      order.before_delete && job.spec.checkpoint.verify_before_delete != VerifyDepth::kSizes;
  return reads_much ? std::max(job.limits.directory_ms, job.limits.first_step_ms)
                    : job.limits.directory_ms;
}

const Node* find_reader(Transition& t, const Job& job, const DamageClaim& claim) {
  if (claim.asked.size() >= kMostReaders) return nullptr;
  const Node* beside_controller = nullptr;
  for (const Node* node : t.nodes(job.id)) {
    if (!may_read(claim, *node)) continue;
    if (!node->beside_controller) return node;
    beside_controller = node;
  }
  return beside_controller;
}

bool ask_second_reader(Transition& t, Job& job, const std::string& reason) {
  const Node* reader = job.claim.checkpoint.empty() ? nullptr : find_reader(t, job, job.claim);
  if (reader == nullptr) {
    job.claim.asked.clear();
    t.changed(job);
    return false;
  }
  const std::string& name = reader->key.name;
  const std::string text = reason + "; " + name + " reads " + job.claim.checkpoint +
                           " again, which is damaged for " + job.claim.node;
  t.issue(ConfirmDamage{job.id, name, job.claim, job.generation}, text);
  t.note("ConfirmDamage", job, text, name);
  return true;
}

const ConfirmDamage* present_reading(const Transition& t, JobId job) {
  const auto& open = t.state().index.open;
  const auto it = open.lower_bound({job, ActionKind::kConfirmDamage, ""});
  if (it == open.end() || std::get<0>(it->first) != job ||
      std::get<1>(it->first) != ActionKind::kConfirmDamage) {
    return nullptr;
  }
  return &std::get<ConfirmDamage>(t.state().outbox.at(it->second).body);
}

void pass_over_reader(Transition& t, Job& job, const std::string& node) {
  const Action* action = t.open(job.id, ActionKind::kConfirmDamage, node);
  if (action == nullptr) return;
  const ConfirmDamage order = std::get<ConfirmDamage>(action->body);
  t.withdraw(job.id, ActionKind::kConfirmDamage, node);
  if (order.before_delete) {
    return verification_answered(t, job, order, DamageVerdict::kUnreadable, "");
  }
  job.claim.asked.push_back(node);
  t.changed(job);
}

void reader_failed(Transition& t, Job& job, const ConfirmDamage& order, const std::string& why) {
  if (order.before_delete) {
    return verification_answered(t, job, order, DamageVerdict::kUnreadable, why);
  }
  job.claim.asked.push_back(order.node);
  t.changed(job);
  t.facts(job.id).directory_failure =
      order.node + " cannot read " + job.claim.checkpoint + " again: " + why;
}

void count_false_claim(Transition& t, const Job& job, const DamageClaim& claim,
                       const std::string& reader) {
  t.note("DamageNotConfirmed", job,
         claim.checkpoint + " is sound where " + reader + " reads it; the fault is " + claim.node +
             "'s own: " + claim.what,
         claim.node);
  Node* node = t.node(job.id, claim.node);
  if (node == nullptr) return;
  node->false_claims += 1;
  t.changed(*node);
}

void settle_claim(Transition& t, Job& job, const DamageClaim& claim, const std::string& reader,
                  const std::string& damage) {
  job.claim = {};
  t.changed(job);
  if (damage.empty()) {
    count_false_claim(t, job, claim, reader);
    return leave_false_claimer(t, job, claim);
  }
  job.damaged.insert(claim.checkpoint);
  t.note("CheckpointDamaged", job,
         claim.checkpoint + " is damaged for " + claim.node + " and for " + reader +
             ", and will not be used again: " + damage,
         claim.node);
}

void on(Transition& t, const DamageAnswered& e) {
  const Action* action = t.open<ConfirmDamage>(e.action);
  if (action == nullptr) {
    t.refuse(e.job, "order " + to_string(e.action) + " was withdrawn or answered before", e.node);
    return;
  }
  const ConfirmDamage order = std::get<ConfirmDamage>(action->body);
  Job& job = *t.job(order.job);
  t.close(e.action);
  if (order.before_delete) return verification_answered(t, job, order, e.verdict, e.what);
  switch (e.verdict) {
    case DamageVerdict::kSound:
      return settle_claim(t, job, order.claim, order.node, "");
    case DamageVerdict::kDamaged:
      return settle_claim(t, job, order.claim, order.node,
                          e.what.empty() ? "it does not say how" : e.what);
    case DamageVerdict::kUnreadable:
      break;
  }
  reader_failed(t, job, order, e.what);
}

}  // namespace hpctl::core
