// SPDX-License-Identifier: Apache-2.0
// Nodes: a life of a node is one holder process, known by its boot id. A life that was declared
// lost never comes back; what it still says is refused, and its node gets a new life.
#include <algorithm>

#include "common/base/plausible.h"
#include "controller/core/membership.h"
#include "controller/core/plan.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

bool is_former(const Node& node, const std::string& boot_id) {
  const auto& former = node.former_boot_ids;
  return std::find(former.begin(), former.end(), boot_id) != former.end();
}

// Why the registration cannot be accepted; "" = it can.
std::string find_conflict(const Job* job, const Node* node, const AgentRegistered& e) {
  if (job == nullptr) return "there is no job " + to_string(e.job);
  if (node == nullptr) return "job " + to_string(e.job) + " has no node " + e.node;
  if (e.generation_seen.value > kMaxGeneration) {
    return "the agent of " + e.node + " names generation " + to_string(e.generation_seen) +
           ", which no job reaches";
  }
  if (e.boot_id.empty()) return "the agent of " + e.node + " sent no boot id";
  if (is_former(*node, e.boot_id)) {
    return "this life of " + e.node + " (boot id " + e.boot_id + ") was declared lost";
  }
  if (node->state == NodeState::kEnded) {
    return "job " + to_string(e.job) + " has ended: " + to_string(job->state);
  }
  return "";
}

// Slots of the present generation that should be alive on the node but are not in its list. Their
// exit reports are repeated right after registration; report_limit_ms() bounds the wait.
bool find_unaccounted(Transition& t, const Node& node, const AgentRegistered& e) {
  bool any = false;
  for (Slot* slot : t.slots(node)) {
    any = any || slot->unaccounted;
    if (slot->state != SlotState::kRunning) continue;
    const bool listed = std::any_of(e.workers.begin(), e.workers.end(), [&](const LiveWorker& w) {
      return w.rank == slot->key.rank && w.generation == slot->generation && w.pid == slot->pid;
    });
    t.set_unaccounted(*slot, !listed);
    any = any || !listed;
  }
  return any;
}

// Workers that no rule here wants alive.
void stop_strangers(Transition& t, const Job& job, const Node& node, const AgentRegistered& e) {
  Generation newest;
  for (const LiveWorker& worker : e.workers) {
    const bool wanted = worker.generation == job.generation && !is_preparing(job);
    if (!wanted) newest = std::max(newest, worker.generation);
  }
  if (newest == Generation{} || has_ended(job.state)) return;
  if (t.open(job.id, ActionKind::kStopWorkers, node.key.name) != nullptr) return;
  // The order covers every generation up to the one named, so it must not name a stranger newer
  // than the present generation while that one is wanted; StartWorkers ends such a stranger.
  if (newest > job.generation && !is_preparing(job)) return;
  const std::string reason = "has workers of generation " + to_string(newest) + ", which nobody " +
                             "here started or which is over";
  t.issue(StopWorkers{job.id, node.key.name, newest}, node.key.name + " " + reason);
  t.note("StopWorkers", job, node.key.name + " " + reason, node.key.name);
}

// An administrator or the scheduler ended what was on it, so its silence says nothing about it.
void excuse_loss(Transition& t, Job& job, const Node& node) {
  for (Fault& fault : job.recent_faults) {
    if (fault.node == node.key.name) fault.unreachable = false;
  }
  t.changed(job);
}

// Where nodes can be replaced, one that the scheduler has given up is to be.
void take_away(Transition& t, Job& job, Node& node, const NodeLost& e) {
  node.taken = true;
  t.changed(node);
  if (!e.given_up) excuse_loss(t, job, node);
  if (node.state == NodeState::kDown) t.set_deadline(node, 0);  // nothing is tried again
  if (e.given_up && job.backend.replaces) give_up_hardware(t, job, node, e.cause);
}

void take_identity(Transition& t, const Job& job, Node& node, const AgentRegistered& e) {
  change_instance(t, job, node, e.instance_id);
  node.generation_seen = e.generation_seen;
  node.taken = node.suspect = false;
  node.boot_id = e.boot_id;
  node.address = e.address;
  node.holder_pid = e.holder_pid;
  node.agent_pid = e.agent_pid;
  node.connected = true;
  node.tells_ready = e.tells_ready;
  node.lemon = e.lemon;
  node.confirms_damage = e.confirms_damage;
  node.beside_controller = e.beside_controller;
  node.is_ready = false;
}

}  // namespace

void on(Transition& t, const NodeLaunched& e) {
  if (t.open<LaunchNode>(e.action) == nullptr) {
    t.refuse(e.job, "launch " + to_string(e.action) + " was withdrawn or answered before", e.node);
    return;
  }
  t.close(e.action);
  Node& node = *t.node(e.job, e.node);
  if (node.state == NodeState::kLaunching) node.holder_pid = e.holder_pid;
  t.changed(node);
}

void on(Transition& t, const AgentRegistered& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  if (const std::string conflict = find_conflict(job, node, e); !conflict.empty()) {
    t.refuse(e.job, conflict, e.node);
    return;
  }
  job->directory_generation = std::max(job->directory_generation, e.generation_seen);
  t.changed(*job);
  if (node->state == NodeState::kUp && node->boot_id != e.boot_id) {
    lose_node(t, *job, *node, e.node + " came back as another life (boot id " + e.boot_id + ")");
  }
  take_identity(t, *job, *node, e);
  if (node->state == NodeState::kEnding) {
    t.changed(*node);  // it gets its EndNode now
    return;
  }
  const bool was_up = node->state == NodeState::kUp;
  t.set_state(*node, NodeState::kUp, was_up ? "reconnected" : "registered");
  meet_workers(t, *job, *node, e);
  const bool unaccounted = find_unaccounted(t, *node, e);
  t.set_deadline(*node, unaccounted ? t.now() + report_limit_ms(*job) : 0);
  // A successor of the controller that knew them did not know that they are alive.
  const bool stops_again =
      !was_up && !e.workers.empty() && t.has_ranks(node->key) &&
      (job->stage == PlanStage::kWaitNodes || job->stage == PlanStage::kFindCheckpoint ||
       job->stage == PlanStage::kRecordGeneration);
  if (stops_again) {
    t.facts(job->id).stop_workers = true;
  } else {
    stop_strangers(t, *job, *node, e);
  }
}

void on(Transition& t, const AgentDisconnected& e) {
  Node* node = t.node(e.job, e.node);
  if (node == nullptr || node->boot_id != e.boot_id || !node->connected) {
    t.refuse(e.job, "not the present connection of " + e.node, e.node);
    return;
  }
  node->connected = false;
  t.changed(*node);
  // failure_detector.h judges how long it may be silent; its open orders are sent again when it is
  // back.
  if (node->state == NodeState::kUp) t.set_deadline(*node, 0);
}

static Evidence evidence_of(const NodeLost& e) {
  if (e.refused && !e.taken) return Evidence::kSlow;  // another node would be refused as well
  return e.unreachable && !e.taken ? Evidence::kUnreachable : Evidence::kBroken;
}

void on(Transition& t, const NodeLost& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  if (node == nullptr) {
    t.refuse(e.job, "there is no such node", e.node);
  } else if (!e.boot_id.empty() && e.boot_id != node->boot_id) {
    t.refuse(e.job, "not the present life of " + e.node, e.node);
  } else if (node->state == NodeState::kDown && e.taken && !node->taken) {
    take_away(t, *job, *node, e);
    if (!t.has_ranks(node->key)) tell_spares_left(t, *job, *node);
    if (t.has_ranks(node->key)) t.facts(job->id).look_again = true;
  } else if (node->state == NodeState::kDown || node->state == NodeState::kEnded) {
    t.refuse(e.job, e.node + " was known to be " + to_string(node->state), e.node);
  } else if (node->state == NodeState::kEnding) {
    node_ended(t, *node, e.cause);
  } else {
    if (e.taken) take_away(t, *job, *node, e);
    lose_node(t, *job, *node, e.node + " was lost: " + e.cause, evidence_of(e));
  }
}

void on(Transition& t, const NodeReturned& e) {
  Job* job = t.job(e.job);
  Node* node = t.node(e.job, e.node);
  const bool expected =
      node != nullptr && (node->state == NodeState::kDown || node->recovery_wall_ms != 0);
  if (!expected || has_ended(job->state)) {
    t.refuse(e.job, e.node + " is not down", e.node);
    return;
  }
  t.set_scheduler_note(*node, "");
  // The requester of the replacement or reboot lets it be used again.
  if (node->recovery_wall_ms != 0) t.set_quarantine(*node, {});
  if (node->state != NodeState::kDown) {
    // Its next registration tells which instance it is; without a new life it is the same.
    if (node->state == NodeState::kUp) give_back(t, *job, *node);
    t.facts(job->id).look_again = true;
    return;
  }
  node->launch_attempts = 0;
  node->taken = false;
  t.set_deadline(*node, 0);
  t.facts(job->id).brought_back.push_back({e.node, e.cause});
}

void on(Transition& t, const NodeEnded& e) {
  Node* node = t.node(e.job, e.node);
  if (node == nullptr || (!e.boot_id.empty() && e.boot_id != node->boot_id)) {
    t.refuse(e.job, "not the present life of " + e.node, e.node);
  } else if (node->state == NodeState::kEnding) {
    node_ended(t, *node, "ended as asked");
  } else if (node->state == NodeState::kUp || node->state == NodeState::kLaunching) {
    // Without our order: an operator, a time limit, or the agent's orphan timeout.
    lose_node(t, *t.job(e.job), *node, e.node + " ended by itself");
  } else {
    t.refuse(e.job, e.node + " was known to be " + to_string(node->state), e.node);
  }
}

}  // namespace hpctl::core
