// SPDX-License-Identifier: Apache-2.0
// Quarantine: a node that must not be given ranks. It belongs to the instance, not to the name:
// when another instance registers under the name, quarantine and fault history are gone.
//
// Reasons for quarantine: an order of the job's owner or root, and a verdict on the hardware. The
// core quarantines a node when the newest kQuarantineFaults faults of the job were all of workers
// on one instance, within a window, and a spare can take over. It also does so when the scheduler
// drains a node that trains and a spare can take over, until the scheduler would use the node
// again, and for kDepartedForMs when a signal told the node to end. Silence (missed heartbeats) is
// never a reason: it blames the network as much as the node.
#include "controller/core/quarantine.h"

#include <algorithm>

#include "controller/core/membership.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"

namespace hpctl::core {

void quarantine(Transition& t, const Job& job, Node& node, const Quarantine& why) {
  t.set_quarantine(node, why);
  t.note("NodeQuarantined", job,
         node.key.name + " gets no ranks any more: " + why.reason +
             (why.evidence.empty() ? "" : " (" + why.evidence + ")") + "; by " + why.by,
         node.key.name);
}

void vacate(Transition& t, Job& job, Node& node, const std::string& cause, bool in_order) {
  if (t.has_ranks(node.key)) {
    fault_seen(t, job, Fault{cause, node.key.name, -1, job.furthest_step, t.seq(), in_order},
               FaultKind::kCause);
    t.facts(job.id).look_again = true;
  } else {
    recover_hardware(t, job, node, true);
  }
}

namespace {

std::string job_conflict(const Job* job, JobId id) {
  if (job == nullptr) return "there is no job " + to_string(id);
  return has_ended(job->state) ? "job " + to_string(id) + " has ended: " + to_string(job->state)
                               : "";
}

}  // namespace

std::string order_conflict(const Job* job, JobId id, uint32_t uid) {
  if (std::string conflict = job_conflict(job, id); !conflict.empty()) return conflict;
  if (uid != 0 && uid != job->owner_uid) {
    return "job " + to_string(id) + " belongs to uid " + std::to_string(job->owner_uid) +
           ", not to uid " + std::to_string(uid);
  }
  return "";
}

std::string order_conflict(const Job* job, const Node* node, JobId id, const std::string& name) {
  std::string conflict = job_conflict(job, id);
  if (!conflict.empty() || node != nullptr) return conflict;
  return "job " + to_string(id) + " has no node " + name;
}

std::vector<QuarantinedNode> quarantined_nodes(Transition& t, const Job& job) {
  std::vector<QuarantinedNode> nodes;
  for (const Node* node : t.nodes(job.id)) {
    const Quarantine& q = node->quarantine;
    const bool rebooted = was_rebooted(t, *node);
    if (q.by.empty() && !rebooted) continue;
    nodes.push_back({node->key.name, node->instance_id, q.by, q.reason, q.hardware, q.since_wall_ms,
                     q.until_wall_ms, node->recovery_wall_ms, q.reboot,
                     rebooted ? node->rebooted_wall_ms : 0});
  }
  return nodes;
}

void expire_quarantines(Transition& t, const Job& job) {
  const int64_t now = t.event().wall_ms;
  std::vector<Node*> expired;
  for (const NodeKey& key : KeysOf(t.state().index.quarantined, job.id)) {
    Node& node = t.state().nodes.at(key);
    const int64_t until = node.quarantine.until_wall_ms;
    if (until != 0 && until <= now) expired.push_back(&node);
  }
  for (Node* node : expired) {
    t.set_quarantine(*node, {});
    t.note("NodeReleased", job, "the quarantine of " + node->key.name + " has expired",
           node->key.name);
  }
}

// Only what saves first loses nothing by moving; a command may lose all since its start.
Node* find_drained(Transition& t, const Job& job) {
  const bool trains = job.spec.train && job.state == JobState::kRunning &&
                      job.stage == PlanStage::kNone && !job.cancel_requested;
  if (!trains) return nullptr;
  for (const NodeKey& key : KeysOf(t.state().index.unwanted, job.id)) {
    Node& node = t.state().nodes.at(key);
    if (node.state != NodeState::kUp || !node.quarantine.by.empty() || !t.has_ranks(key)) continue;
    return can_afford_restart(t, job) && has_lasting_spare(t, job) ? &node : nullptr;
  }
  return nullptr;
}

void leave_drained(Transition& t, Job& job) {
  Node& node = *find_drained(t, job);
  const int64_t wall = t.event().wall_ms;
  quarantine(t, job, node,
             {kByScheduler, node.scheduler_note, "", false, wall, wall + kQuarantineForMs});
  vacate(t, job, node,
         node.key.name + " is to be left (" + node.scheduler_note + "); a spare takes its ranks",
         true);
}

void end_drain(Transition& t, Job& job, Node& node) {
  if (node.quarantine.by != kByScheduler) return;
  t.set_quarantine(node, {});
  t.note("NodeReleased", job, node.key.name + " may be given ranks again", node.key.name);
  t.facts(job.id).look_again = true;
}

namespace {

// Not of a node that was lost. In a hang several workers of one node may be suspects; if a node
// cannot start its workers, none is.
bool is_of_workers(const Fault& fault) { return fault.rank >= 0 || fault.hang || fault.start; }

}  // namespace

void count_fault(Transition& t, Job& job, const Fault& fault) {
  Node* node = is_of_workers(fault) ? t.node(job.id, fault.node) : nullptr;
  if (node == nullptr) return;
  auto& times = node->fault_times_ms;
  std::erase_if(times, [&](int64_t at) { return at + kQuarantineWindowMs <= t.now(); });
  times.push_back(t.now());
  t.changed(*node);
  const auto& faults = job.recent_faults;
  const auto in_a_row = std::find_if(faults.rbegin(), faults.rend(), [&](const Fault& f) {
    return f.node != fault.node || !is_of_workers(f);
  });
  if (in_a_row - faults.rbegin() < kQuarantineFaults ||
      static_cast<int64_t>(times.size()) < kQuarantineFaults || !has_spare(t, job) ||
      !node->quarantine.by.empty()) {
    return;
  }
  const std::string reason = std::to_string(kQuarantineFaults) + " faults in a row were its";
  const bool for_hangs =
      std::all_of(faults.rbegin(), in_a_row, [](const Fault& f) { return f.hang; });
  quarantine(t, job, *node,
             {.by = "hpctl",
              .reason = reason,
              .evidence = fault.cause,
              .since_wall_ms = t.event().wall_ms,
              .until_wall_ms = t.event().wall_ms + kQuarantineForMs,
              .for_hangs = for_hangs});
}

void condemn(Transition& t, Job& job, Node& node, const Unfitness& unfit) {
  const int64_t wall = t.event().wall_ms;
  const int64_t until = unfit.hardware ? 0 : wall + kQuarantineForMs;
  Quarantine why{"hpctl", unfit.reason, "", unfit.hardware, wall, until};
  if (unfit.hardware) choose_remedy(t, node, unfit.reboot, why);
  quarantine(t, job, node, why);
  const char* what = unfit.hardware ? " has a hardware fault: " : " is unfit: ";
  vacate(t, job, node, node.key.name + what + unfit.reason);
}

namespace {

// The node that says so, if it has no ranks and may get some. Otherwise it is refused, and nullptr.
Node* telling_spare(Transition& t, JobId id, const std::string& name, const std::string& boot_id) {
  const Job* job = t.job(id);
  Node* node = t.node(id, name);
  if (job == nullptr || node == nullptr || has_ended(job->state) || node->state != NodeState::kUp ||
      node->boot_id != boot_id) {
    t.refuse(id, "not the present life of " + name, name);
    return nullptr;
  }
  if (t.has_ranks(node->key)) {
    t.refuse(id, name + " has ranks by now", name);
    return nullptr;
  }
  if (!node->quarantine.by.empty()) {
    t.refuse(id, name + " was quarantined already", name);
    return nullptr;
  }
  return node;
}

}  // namespace

// No rank depends on it: no restart, and there is time for a repair until a node is lost.
void on(Transition& t, const SpareFoundUnfit& e) {
  Node* node = telling_spare(t, e.job, e.node, e.boot_id);
  if (node == nullptr) return;
  Job& job = *t.job(e.job);
  condemn(t, job, *node, {e.reason, e.hardware, e.reboot});
  if (has_spare(t, job)) return;
  t.note("NoSpareLeft", job, e.node + " was the last spare that is up", e.node);
}

void on(Transition& t, const SpareReady& e) {
  Node* node = telling_spare(t, e.job, e.node, e.boot_id);
  if (node == nullptr) return;
  node->is_ready = true;
  t.changed(*node);
}

// It leaves in order: its ranks save, and others take them. Nobody is to blame.
void on(Transition& t, const NodeDeparts& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  if (job == nullptr || node == nullptr || has_ended(job->state) || node->state != NodeState::kUp ||
      node->boot_id != e.boot_id) {
    t.refuse(e.job, "not the present life of " + e.node, e.node);
    return;
  }
  if (job->cancel_requested || !node->quarantine.by.empty()) return;
  if (t.has_ranks(node->key) && !has_spare(t, *job)) {
    t.note("NotPossible", *job, "no spare can take the ranks of " + e.node + " before it ends",
           e.node);
    return;
  }
  const int64_t wall = t.event().wall_ms;
  const std::string told = "it was told to end (" + e.cause + ")";
  quarantine(t, *job, *node, {kByScheduler, told, "", false, wall, wall + kDepartedForMs});
  vacate(t, *job, *node, e.node + " leaves: " + told + consequence_of_leaving(t, *job, *node),
         true);
}

void on(Transition& t, const QuarantineRequested& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  std::string conflict = order_conflict(job, node, e.job, e.node);
  if (conflict.empty() && node->quarantine.by.empty() && !can_vacate(t, *job, *node)) {
    conflict = e.node + " has ranks, and no spare, nodes.min or requeue lets the job go on without";
  }
  if (conflict.empty()) conflict = unasked_requeue(t, *job, *node, e.asks_first);
  if (!conflict.empty()) {
    t.refuse(e.job, conflict, e.node);
    return;
  }
  const std::string reason = e.reason.empty() ? "an operator asked for it" : e.reason;
  const int64_t wall = t.event().wall_ms;
  const Quarantine& before = node->quarantine;
  quarantine(t, *job, *node,
             {"uid " + std::to_string(e.uid), reason, "", before.hardware, wall,
              e.for_ms == 0 ? 0 : wall + e.for_ms, before.reboot});
  vacate(t, *job, *node,
         e.node + " was quarantined: " + reason + consequence_of_leaving(t, *job, *node), true);
}

void on(Transition& t, const ReleaseRequested& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  std::string conflict = order_conflict(job, node, e.job, e.node);
  if (conflict.empty() && node->quarantine.by.empty()) conflict = e.node + " is not quarantined";
  if (!conflict.empty()) {
    t.refuse(e.job, conflict, e.node);
    return;
  }
  t.set_quarantine(*node, {});
  node->fault_times_ms.clear();
  node->false_claims = 0;
  t.note("NodeReleased", *job, e.node + " may be given ranks again", e.node);
  t.facts(job->id).look_again = true;
}

}  // namespace hpctl::core
