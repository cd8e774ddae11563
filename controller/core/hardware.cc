// SPDX-License-Identifier: Apache-2.0
// Broken nodes, if the cluster's operator (HyperPod) repairs them: a node is quarantined with a
// verdict on its hardware, its work leaves, and then, once, a reboot or another instance is
// requested.
//
// A reboot takes minutes and keeps the instance, a replacement half an hour. So if the verdict says
// that a reboot may help, a reboot is requested first. The same instance with such a verdict again
// within kRebootWindowMs is replaced. A user's request for one of them is carried out.
//
// A node counts as repaired when the scheduler lets it be used again: the checks before the first
// workers of its next session decide whether it can work. Another instance has no history; the same
// one keeps only that it was rebooted, also in the job's next session and under a successor.
#include <algorithm>

#include "controller/core/membership.h"
#include "controller/core/quarantine.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

// ", 75 s after it was to be replaced or rebooted"; "" without such a request.
std::string since_asked(const Transition& t, const Node& node) {
  if (node.recovery_wall_ms == 0) return "";
  const int64_t ms = std::max<int64_t>(0, t.event().wall_ms - node.recovery_wall_ms);
  return ", " + std::to_string(ms / 1000) + " s after it was marked to be replaced or rebooted";
}

}  // namespace

void remember_node(Node& row, const std::vector<QuarantinedNode>& known) {
  for (const QuarantinedNode& q : known) {
    if (q.node != row.key.name) continue;
    row.instance_id = q.instance_id;
    row.recovery_wall_ms = q.recovery_wall_ms;
    row.rebooted_wall_ms = q.rebooted_wall_ms;
    if (q.recovery_wall_ms != 0) continue;  // which has been done when the job has the node again
    row.quarantine = {q.by, q.reason, "", q.hardware, q.since_wall_ms, q.until_wall_ms, q.reboot};
  }
}

bool was_rebooted(const Transition& t, const Node& node) {
  return node.rebooted_wall_ms != 0 && t.event().wall_ms < node.rebooted_wall_ms + kRebootWindowMs;
}

void choose_remedy(const Transition& t, const Node& node, bool reboot, Quarantine& why) {
  why.reboot = reboot && !was_rebooted(t, node);
  if (!reboot || why.reboot) return;
  const int64_t ago_ms = std::max<int64_t>(0, t.event().wall_ms - node.rebooted_wall_ms);
  why.evidence += (why.evidence.empty() ? "" : "; ") + std::string("hpctl requested its reboot ") +
                  std::to_string(ago_ms / 1000) + " s ago";
}

void change_instance(Transition& t, const Job& job, Node& node, const std::string& instance_id) {
  const std::string before = node.instance_id;
  node.instance_id = instance_id;
  if (before.empty() || instance_id.empty()) return;
  if (before == instance_id) {
    // After a requeue the node is the job's again, so the request has been carried out.
    if (node.recovery_wall_ms != 0 && node.quarantine.by.empty()) give_back(t, job, node);
    return;
  }
  node.fault_times_ms.clear();
  node.false_claims = 0;
  node.launch_attempts = 0;
  const std::string since = since_asked(t, node);
  const bool was_quarantined = !node.quarantine.by.empty();
  node.recovery_wall_ms = 0;
  node.rebooted_wall_ms = 0;
  t.set_quarantine(node, {});
  t.note("NodeReplaced", job,
         node.key.name + " is another instance now (" + before + " before, " + instance_id + ")" +
             since + "; its health history starts again" +
             (was_quarantined ? ", its quarantine has ended" : ""),
         node.key.name);
}

void give_back(Transition& t, const Job& job, Node& node) {
  const std::string since = since_asked(t, node);
  node.recovery_wall_ms = 0;
  node.replaced_instance.clear();
  node.fault_times_ms.clear();
  node.false_claims = 0;
  t.set_quarantine(node, {});
  t.note("NodeGivenBack", job, node.key.name + " can be used again, the same instance" + since,
         node.key.name);
}

void recover_hardware(Transition& t, Job& job, Node& node, bool leaves) {
  const Quarantine& why = node.quarantine;
  if (!job.backend.replaces || !why.hardware) return;
  if (leaves && t.has_ranks(node.key)) return;
  if (node.instance_id.empty() || node.replaced_instance == node.instance_id) return;
  node.replaced_instance = node.instance_id;
  t.changed(node);
  const std::string text = node.key.name + " (" + node.instance_id + ") is to be " +
                           (why.reboot ? "rebooted: " : "replaced: ") + why.reason;
  t.issue(ReplaceNode{job.id, node.key.name, node.instance_id, why.reason, leaves, why.reboot,
                      why.since_wall_ms},
          text);
  t.note(why.reboot ? "RebootNode" : "ReplaceNode", job, text, node.key.name);
}

void give_up_hardware(Transition& t, Job& job, Node& node, const std::string& evidence) {
  if (node.quarantine.hardware) return;
  const std::string reason = "the scheduler has given it up";
  quarantine(t, job, node, {"hpctl", reason, evidence, true, t.event().wall_ms, 0});
  recover_hardware(t, job, node, true);
}

void on(Transition& t, const RecoveryRequested& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  std::string conflict = order_conflict(job, node, e.job, e.node);
  if (conflict.empty() && !job->backend.replaces) {
    conflict =
        "no service reboots or replaces nodes here (it is no HyperPod); hpctl nodes quarantine " +
        e.node + " keeps ranks from it";
  } else if (conflict.empty() && node->instance_id.empty()) {
    conflict = e.node + " has not registered: which instance it is, is unknown";
  } else if (conflict.empty() && (node->recovery_wall_ms != 0 ||
                                  t.open(e.job, ActionKind::kReplaceNode, e.node) != nullptr)) {
    conflict = e.node + " is to be replaced or rebooted already";
  } else if (conflict.empty() && node->quarantine.by.empty() && !can_vacate(t, *job, *node)) {
    conflict = e.node + " has ranks, and no spare, nodes.min, requeue or wait lets it go";
  }
  if (conflict.empty()) conflict = unasked_requeue(t, *job, *node, e.asks_first);
  if (!conflict.empty()) {
    t.refuse(e.job, conflict, e.node);
    return;
  }
  const std::string reason = e.reason.empty() ? "an operator asked for it" : e.reason;
  node->replaced_instance.clear();  // what failed before, for want of rights say, is tried again
  quarantine(t, *job, *node,
             {"uid " + std::to_string(e.uid), reason, "", true, t.event().wall_ms, 0, e.reboot});
  vacate(t, *job, *node,
         e.node + " is to be " + (e.reboot ? "rebooted: " : "replaced: ") + reason +
             consequence_of_leaving(t, *job, *node),
         true);
}

void on(Transition& t, const HardwareFaultFound& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  if (job == nullptr || node == nullptr || has_ended(job->state) || node->boot_id != e.boot_id) {
    t.refuse(e.job, "not the present life of " + e.node, e.node);
    return;
  }
  if (node->quarantine.hardware) {
    t.refuse(e.job, e.node + " was known to be broken", e.node);
    return;
  }
  Quarantine why{"hpctl", e.reason, e.evidence, true, t.event().wall_ms, 0};
  choose_remedy(t, *node, e.reboot, why);
  quarantine(t, *job, *node, why);
  vacate(t, *job, *node, e.node + " has a hardware fault: " + e.reason);
}

void on(Transition& t, const NodeReplacementRequested& e) {
  const bool seen = e.action == ActionId{};
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  if (!seen && t.open<ReplaceNode>(e.action) == nullptr) {
    t.refuse(e.job, "replacement " + to_string(e.action) + " was answered before", e.node);
    return;
  }
  if (seen && (node == nullptr || has_ended(job->state) || node->recovery_wall_ms != 0 ||
               t.open(e.job, ActionKind::kReplaceNode, e.node) != nullptr)) {
    t.refuse(e.job, "that " + e.node + " is to be replaced or rebooted was known", e.node);
    return;
  }
  if (!seen) t.close(e.action);
  if (node->replaced_instance.empty()) node->replaced_instance = node->instance_id;
  node->recovery_wall_ms = t.event().wall_ms;
  if (e.reboot) node->rebooted_wall_ms = t.event().wall_ms;
  t.changed(*node);
  if (t.has_ranks(node->key)) t.facts(job->id).look_again = true;
}

}  // namespace hpctl::core
