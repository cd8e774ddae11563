// SPDX-License-Identifier: Apache-2.0
// Quarantine: a node that must not be given ranks. It belongs to the instance, not to the name:
// when another instance registers under the name, quarantine and fault history are gone.
//
// Who may quarantine: the job's owner or root; a verdict on the hardware; and the core itself when
// the newest kQuarantineFaults faults of the job were all of workers on one instance, within a
// window, and a spare can take over. Silence (missed heartbeats) is never a reason: it blames the
// network as much as the node.
#include <algorithm>

#include "controller/core/plan.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

void quarantine(Transition& t, Job& job, Node& node, const Quarantine& why) {
  t.set_quarantine(node, why);
  t.note("NodeQuarantined", job,
         node.key.name + " gets no ranks any more: " + why.reason +
             (why.evidence.empty() ? "" : " (" + why.evidence + ")") + "; by " + why.by,
         node.key.name);
}

// Its ranks go elsewhere, in a new generation; without ranks nothing is disturbed.
void vacate(Transition& t, Job& job, Node& node, const std::string& cause) {
  if (t.has_ranks(node.key)) {
    fault_seen(t, job, Fault{cause, node.key.name, -1, job.furthest_step, t.seq()},
               FaultKind::kCause);
    const bool waits = job.stage == PlanStage::kWaitNodes ||
                       job.stage == PlanStage::kFindCheckpoint ||
                       job.stage == PlanStage::kRecordGeneration;
    if (waits && !has_ended(job.state)) enter_wait_nodes(t, job);
  } else {
    replace_hardware(t, job, node, true);
  }
}

// ", 75 s after it was to be replaced or rebooted"; "" when that was not asked for.
std::string since_asked(const Transition& t, const Node& node) {
  if (node.recovery_wall_ms == 0) return "";
  const int64_t ms = std::max<int64_t>(0, t.event().wall_ms - node.recovery_wall_ms);
  return ", " + std::to_string(ms / 1000) + " s after it was marked to be replaced or rebooted";
}

// Why the caller may not; "" = it may.
std::string find_conflict(const Job* job, const Node* node, JobId id, const std::string& name,
                          uint32_t uid) {
  if (job == nullptr) return "there is no job " + to_string(id);
  if (node == nullptr) return "job " + to_string(id) + " has no node " + name;
  if (has_ended(job->state)) return "job " + to_string(id) + " has ended";
  if (uid != 0 && uid != job->owner_uid) {
    return "job " + to_string(id) + " belongs to uid " + std::to_string(job->owner_uid) +
           ", not to uid " + std::to_string(uid);
  }
  return "";
}

}  // namespace

std::vector<QuarantinedNode> quarantined_nodes(Transition& t, const Job& job) {
  std::vector<QuarantinedNode> nodes;
  const auto& keys = t.state().index.quarantined;
  for (auto it = keys.lower_bound({job.id, ""}); it != keys.end() && it->job == job.id; ++it) {
    const Node& node = t.state().nodes.at(*it);
    const Quarantine& q = node.quarantine;
    nodes.push_back({it->name, node.instance_id, q.by, q.reason, q.hardware, q.since_wall_ms,
                     q.until_wall_ms, node.recovery_wall_ms});
  }
  return nodes;
}

void expire_quarantines(Transition& t, const Job& job) {
  const int64_t now = t.event().wall_ms;
  std::vector<Node*> expired;
  const auto& keys = t.state().index.quarantined;
  for (auto it = keys.lower_bound({job.id, ""}); it != keys.end() && it->job == job.id; ++it) {
    Node& node = t.state().nodes.at(*it);
    const int64_t until = node.quarantine.until_wall_ms;
    if (until != 0 && until <= now) expired.push_back(&node);
  }
  for (Node* node : expired) {
    t.set_quarantine(*node, {});
    t.note("NodeReleased", job, "the quarantine of " + node->key.name + " has expired",
           node->key.name);
  }
}

void change_instance(Transition& t, const Job& job, Node& node, const std::string& instance_id) {
  const std::string before = node.instance_id;
  node.instance_id = instance_id;
  if (before.empty() || instance_id.empty()) return;
  if (before == instance_id) {
    // After a requeue: it is the job's again, so what was asked for has been done.
    if (node.recovery_wall_ms != 0 && node.quarantine.by.empty()) give_back(t, job, node);
    return;
  }
  node.fault_times_ms.clear();
  node.launch_attempts = 0;
  const std::string since = since_asked(t, node);
  const bool was_quarantined = !node.quarantine.by.empty();
  node.recovery_wall_ms = 0;
  t.set_quarantine(node, {});
  t.note("NodeReplaced", job,
         node.key.name + " is another instance now (" + before + " before, " + instance_id + ")" +
             since + "; its health history starts anew" +
             (was_quarantined ? ", its quarantine has ended" : ""),
         node.key.name);
}

void give_back(Transition& t, const Job& job, Node& node) {
  const std::string since = since_asked(t, node);
  node.recovery_wall_ms = 0;
  node.replaced_instance.clear();
  node.fault_times_ms.clear();
  t.set_quarantine(node, {});
  t.note("NodeGivenBack", job, node.key.name + " can be used again, the same instance" + since,
         node.key.name);
}

void count_fault(Transition& t, Job& job, const Fault& fault) {
  Node* node = fault.rank < 0 ? nullptr : t.node(job.id, fault.node);
  if (node == nullptr) return;
  auto& times = node->fault_times_ms;
  std::erase_if(times, [&](int64_t at) { return at + kQuarantineWindowMs <= t.now(); });
  times.push_back(t.now());
  t.changed(*node);
  const auto& faults = job.recent_faults;
  const auto in_a_row = std::find_if(faults.rbegin(), faults.rend(), [&](const Fault& f) {
    return f.node != fault.node || f.rank < 0;
  });
  if (in_a_row - faults.rbegin() < kQuarantineFaults ||
      static_cast<int64_t>(times.size()) < kQuarantineFaults || !has_spare(t, job) ||
      !node->quarantine.by.empty()) {
    return;
  }
  const std::string reason = std::to_string(kQuarantineFaults) + " faults in a row were its";
  quarantine(t, job, *node,
             {"hpctl", reason, fault.cause, false, t.event().wall_ms,
              t.event().wall_ms + kQuarantineForMs});
}

void replace_hardware(Transition& t, Job& job, Node& node, bool leaves) {
  if (!job.backend.replaces || !node.quarantine.hardware) return;
  if (leaves && t.has_ranks(node.key)) return;
  if (node.instance_id.empty() || node.replaced_instance == node.instance_id) return;
  node.replaced_instance = node.instance_id;
  t.changed(node);
  const std::string text =
      node.key.name + " (" + node.instance_id + ") is to be replaced: " + node.quarantine.reason;
  t.issue(ReplaceNode{job.id, node.key.name, node.instance_id, node.quarantine.reason, leaves},
          text);
  t.note("ReplaceNode", job, text, node.key.name);
}

void condemn(Transition& t, Job& job, Node& node, const std::string& reason, bool hardware) {
  const int64_t wall = t.event().wall_ms;
  quarantine(t, job, node,
             {"hpctl", reason, "", hardware, wall, hardware ? 0 : wall + kQuarantineForMs});
  vacate(t, job, node,
         node.key.name + (hardware ? " has a hardware fault: " : " is unfit: ") + reason);
}

void give_up_hardware(Transition& t, Job& job, Node& node, const std::string& evidence) {
  if (node.quarantine.hardware) return;
  const std::string reason = "the scheduler has given it up";
  quarantine(t, job, node, {"hpctl", reason, evidence, true, t.event().wall_ms, 0});
  replace_hardware(t, job, node, true);
}

void on(Transition& t, const QuarantineRequested& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  std::string conflict = find_conflict(job, node, e.job, e.node, e.uid);
  if (conflict.empty() && node->quarantine.by.empty() && !can_vacate(t, *job, *node)) {
    conflict = e.node + " has ranks, and no spare, nodes.min or requeue lets the job go on without";
  }
  if (!conflict.empty()) {
    t.refuse(e.job, conflict, e.node);
    return;
  }
  const std::string reason = e.reason.empty() ? "an operator asked for it" : e.reason;
  const int64_t wall = t.event().wall_ms;
  const bool hardware = node->quarantine.hardware;
  quarantine(t, *job, *node,
             {"uid " + std::to_string(e.uid), reason, "", hardware, wall,
              e.for_ms == 0 ? 0 : wall + e.for_ms});
  vacate(t, *job, *node, e.node + " was quarantined: " + reason);
}

void on(Transition& t, const ReleaseRequested& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  std::string conflict = find_conflict(job, node, e.job, e.node, e.uid);
  if (conflict.empty() && node->quarantine.by.empty()) conflict = e.node + " is not quarantined";
  if (!conflict.empty()) {
    t.refuse(e.job, conflict, e.node);
    return;
  }
  t.set_quarantine(*node, {});
  node->fault_times_ms.clear();
  t.note("NodeReleased", *job, e.node + " may be given ranks again", e.node);
  if (job->stage == PlanStage::kWaitNodes) enter_wait_nodes(t, *job);
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
  quarantine(t, *job, *node, {"hpctl", e.reason, e.evidence, true, t.event().wall_ms, 0});
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
    t.refuse(e.job, "that " + e.node + " is to be replaced was known", e.node);
    return;
  }
  if (!seen) t.close(e.action);
  if (node->replaced_instance.empty()) node->replaced_instance = node->instance_id;
  node->recovery_wall_ms = t.event().wall_ms;
  t.changed(*node);
  if (job->stage == PlanStage::kWaitNodes && t.has_ranks(node->key)) enter_wait_nodes(t, *job);
}

}  // namespace hpctl::core
