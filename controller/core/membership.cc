// SPDX-License-Identifier: Apache-2.0
// Which node has which ranks. A node's ranks form a block (a group) of workers_per_node; groups
// move whole and only while no rank of the job trains.
//
// The ladder for a node that is lost (recovery.on_node_loss):
//   a spare that is up takes its group at once; the node is brought back in the background
//   without one it is launched again, a bounded number of times; then
//   shrink   the largest world that nodes.min and the batch allow; the last groups fill the holes
//   requeue  the scheduler starts the job again elsewhere
//   wait     patiently: in place, or, for a node that was taken from the job or is to be replaced
//            (which happens when no job holds it), in the scheduler's queue
// and if none of these is possible, the attempt counts as another restart of the job. A shrunk job
// grows back when a later generation finds nodes without ranks.
#include "controller/core/membership.h"

#include <algorithm>
#include <array>
#include <set>

#include "common/base/check.h"
#include "controller/core/last_generation.h"
#include "controller/core/plan.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

bool is_quarantined(const Node& node) { return !node.quarantine.by.empty(); }

bool allows(const Job& job, const char* action) {
  const auto& actions = job.spec.recovery.on_node_loss;
  return std::find(actions.begin(), actions.end(), action) != actions.end();
}

// Nodes that can take ranks: connected ones first, lemons after the others, and nodes that the
// scheduler drains last.
std::vector<Node*> find_spares(Transition& t, const Job& job) {
  std::vector<Node*> spares;
  for (const NodeKey& key : KeysOf(t.state().index.idle, job.id)) {
    Node& node = t.state().nodes.at(key);
    if (!is_quarantined(node) && !is_stopping(t.state(), node)) spares.push_back(&node);
  }
  std::stable_partition(spares.begin(), spares.end(), [](const Node* n) { return !n->lemon; });
  std::stable_partition(spares.begin(), spares.end(), [](const Node* n) { return n->connected; });
  std::stable_partition(spares.begin(), spares.end(),
                        [](const Node* n) { return n->scheduler_note.empty(); });
  return spares;
}

// Nothing says that it is broken: it has not come up in time, as most others have not. An image
// that is imported everywhere, say.
bool is_only_slow(Transition& t, const Job& job, const Node& node) {
  if (!is_lost(node) || node.suspect || node.taken || is_quarantined(node)) return false;
  const auto nodes = t.nodes(job.id);
  const auto up = std::count_if(nodes.begin(), nodes.end(),
                                [](const Node* n) { return n->state == NodeState::kUp; });
  return 2 * up <= static_cast<int64_t>(nodes.size());
}

// Why the job cannot be requeued; "" = it can.
std::string requeue_conflict(Transition& t, const Job& job) {
  if (!job.backend.requeues) return "this scheduler cannot requeue the job";
  if (!job.requeue_refusal.empty()) return job.requeue_refusal;
  std::vector<std::string> slow;
  for (const Node* node : nodes_missing(t, job)) {
    if (!is_only_slow(t, job, *node)) return "";
    slow.push_back(node->key.name);
  }
  if (slow.empty()) return "";
  return "nothing says that " + join_some(slow) + " would be quicker elsewhere (limits.launch)";
}

// The first so many nodes with ranks whose ranks must go elsewhere. The workers of a quarantined
// node that is up must have ended first.
std::vector<Node*> find_vacated(Transition& t, const Job& job, size_t most) {
  const Index& index = t.state().index;
  std::set<NodeKey> away;  // not up
  for (const NodeKey& key : KeysOf(index.lost, job.id)) {
    if (away.size() == most) break;
    if (t.has_ranks(key)) away.insert(key);
  }
  std::vector<Node*> quarantined;  // and up
  for (const NodeKey& key : KeysOf(index.quarantined, job.id)) {
    if (job.stage == PlanStage::kStopWorkers || !t.has_ranks(key)) continue;
    if (index.not_up.contains(key)) {
      away.insert(key);
    } else {
      quarantined.push_back(&t.state().nodes.at(key));
    }
  }
  std::vector<Node*> vacated;
  for (const NodeKey& key : away) vacated.push_back(&t.state().nodes.at(key));
  vacated.insert(vacated.end(), quarantined.begin(), quarantined.end());
  vacated.resize(std::min(vacated.size(), most));
  return vacated;
}

// Once the checkpoint is looked for the members stand; a missing one leads back to kWaitNodes.
bool may_move_ranks(const Job& job) {
  const bool is_early = job.stage == PlanStage::kStopWorkers || job.stage == PlanStage::kWaitNodes;
  const bool has_more_nodes = job.spec.nodes + job.spec.spares > job.nodes();
  return is_early && has_more_nodes && allows(job, kOnNodeLossSpare);
}

std::string why_vacated(const Node& node) {
  if (node.state != NodeState::kUp) return node.reason;
  return "quarantined: " + node.quarantine.reason;
}

std::string ranks_text(const std::vector<Slot*>& slots) {
  const std::string first = to_string(slots.front()->key.rank);
  if (slots.size() == 1) return "rank " + first;
  return "ranks " + first + "-" + to_string(slots.back()->key.rank);
}

void bind_all(Transition& t, const std::vector<Slot*>& slots, const std::string& node) {
  for (Slot* slot : slots) t.bind(*slot, node);
  Node* taken = t.node(slots.front()->key.job, node);
  if (taken == nullptr) return;  // to none: the world becomes smaller
  taken->is_ready = false;
  t.changed(*taken);
}

std::vector<Slot*> group_slots(Transition& t, const Job& job, int32_t group) {
  std::vector<Slot*> slots;
  const int32_t first = group * job.spec.workers_per_node;
  for (int32_t i = 0; i < job.spec.workers_per_node; ++i) {
    slots.push_back(t.slot(job.id, Rank{first + i}));
  }
  return slots;
}

// Can the workload run on that many nodes? Any number of workers shares the global batch.
bool fits(const Job& job, int32_t nodes) {
  if (!job.spec.train) return true;
  const int64_t world_size = int64_t{nodes} * job.spec.workers_per_node;
  const int64_t group = std::max<int64_t>(1, job.spec.train->shard_group);
  return world_size % group == 0;
}

// The most nodes from `least` to `most` that the workload can run on; 0 = none.
int32_t largest_fit(const Job& job, int32_t least, int32_t most) {
  for (int32_t n = most; n >= least; --n) {
    if (fits(job, n)) return n;
  }
  return 0;
}

// As many nodes as the job can use together with these.
int32_t grown_by(const Job& job, const std::vector<Node*>& spares) {
  const auto most = std::min(job.spec.nodes, job.nodes() + static_cast<int32_t>(spares.size()));
  return largest_fit(job, job.nodes(), most);
}

void shrink_to(Transition& t, Job& job, int32_t nodes) {
  std::vector<int32_t> holes;
  std::vector<std::string> donors;
  for (int32_t group = 0; group < job.nodes(); ++group) {
    const std::vector<Slot*> slots = group_slots(t, job, group);
    const Node& node = *t.node(job.id, slots.front()->node);
    const bool missing = node.state != NodeState::kUp || is_quarantined(node);
    if (group < nodes && missing) holes.push_back(group);
    if (group >= nodes && !missing) donors.push_back(node.key.name);
    if (group >= nodes) bind_all(t, slots, "");
  }
  HP_CHECK(donors.size() >= holes.size());
  for (size_t i = 0; i < holes.size(); ++i) {
    bind_all(t, group_slots(t, job, holes[i]), donors[i]);
  }
  job.active_nodes = nodes;
  t.changed(job);
}

// Why the job cannot go on with fewer nodes; "" = it does now.
std::string try_shrink(Transition& t, Job& job) {
  const auto missing = static_cast<int32_t>(nodes_missing(t, job).size());
  const int32_t left = job.nodes() - missing;
  const int32_t least = job.spec.fewest_nodes();
  if (left < least) {
    return "nodes.min is " + std::to_string(least) + " and " + std::to_string(left) + " are left";
  }
  const int32_t nodes = largest_fit(job, least, left);
  if (nodes == 0) {
    return "no number of nodes from " + std::to_string(least) + " to " + std::to_string(left) +
           " has whole groups of " + std::to_string(job.spec.train->shard_group) + " workers";
  }
  const std::vector<Node*> vacated = nodes_missing(t, job);
  const int32_t before = job.nodes();
  shrink_to(t, job, nodes);
  t.note("WorldShrunk", job,
         "goes on with " + std::to_string(nodes) + " of " + std::to_string(before) +
             " nodes; the global batch stays as it is");
  for (Node* node : vacated) recover_hardware(t, job, *node, true);
  return "";
}

// Broken nodes are to be replaced, also those that keep their ranks. True while an answer to that
// is awaited, which leads back to the policy.
bool asks_for_replacements(Transition& t, Job& job) {
  for (Node* node : nodes_missing(t, job)) recover_hardware(t, job, *node, false);
  return t.any_open(job.id, ActionKind::kReplaceNode);
}

// The ranks of a node that is to be replaced are not kept from it: until that is done, it is the
// scheduler that does not use the node.
bool is_to_be_excluded(Transition& t, const Job& job, const Node& node, bool waits) {
  if (is_only_slow(t, job, node)) return false;
  if (node.recovery_wall_ms != 0 || (waits && node.taken && !is_quarantined(node))) return false;
  return is_lost(node) || is_quarantined(node);
}

void issue_requeue(Transition& t, Job& job, RequeueJob action) {
  enter_stage(t, job, PlanStage::kRequeue);
  const std::string text = job.at_limit ? "the job is requeued at its time limit"
                           : action.exclude.empty()
                               ? "the job is requeued and waits for its nodes"
                               : "the job is requeued without " + join_some(action.exclude);
  job.reason = text;
  t.issue(std::move(action), text);
  t.note_because(job.fault_seq, "RequeueJob", job, text);
}

// `waits`: for the very nodes that are lost.
std::string try_requeue(Transition& t, Job& job, bool waits) {
  if (std::string conflict = requeue_conflict(t, job); !conflict.empty()) return conflict;
  if (asks_for_replacements(t, job)) return "";
  RequeueJob action{job.id, {}, job.backend.restart_count, quarantined_nodes(t, job)};
  for (const Node* node : t.nodes(job.id)) {
    if (is_to_be_excluded(t, job, *node, waits)) action.exclude.push_back(node->key.name);
  }
  for (const auto kind :
       {ActionKind::kConfirmDamage, ActionKind::kFindCheckpoint, ActionKind::kRecordGeneration}) {
    t.withdraw_all(job.id, kind);
  }
  issue_requeue(t, job, std::move(action));
  return "";
}

// In place, unless only the queue can help.
std::string try_wait(Transition& t, Job& job) {
  if (asks_for_replacements(t, job)) return "";
  const auto missing = nodes_missing(t, job);
  const bool in_vain = std::any_of(missing.begin(), missing.end(), [](const Node* node) {
    return node->taken || node->recovery_wall_ms != 0;
  });
  return in_vain && requeue_conflict(t, job).empty() ? try_requeue(t, job, true) : "";
}

// A way to go on without a lost node.
struct Rung {
  const char* word;                          // of recovery.on_node_loss
  std::string (*try_it)(Transition&, Job&);  // why the job does not; "" = it does now
};
constexpr std::array kRungs = {
    // One that was up would have the ranks already.
    Rung{kOnNodeLossSpare, [](Transition&, Job&) -> std::string { return "no spare is up"; }},
    Rung{kOnNodeLossShrink, try_shrink},
    Rung{kOnNodeLossRequeue, [](Transition& t, Job& job) { return try_requeue(t, job, false); }},
    Rung{kOnNodeLossWait, try_wait},
};

// The first rung that fits, in the job's order, and why those before did not; false = none does.
bool apply_policy(Transition& t, Job& job, const std::string& what, bool tell) {
  for (const std::string& word : job.spec.recovery.on_node_loss) {
    const auto rung = std::find_if(kRungs.begin(), kRungs.end(),
                                   [&](const Rung& candidate) { return word == candidate.word; });
    const std::string refusal =
        rung == kRungs.end() ? "there is no such way" : rung->try_it(t, job);
    if (refusal.empty()) return true;
    if (tell) t.note("NotPossible", job, what + ": " + word + ": " + refusal);
  }
  return false;
}

}  // namespace

NodeRole role_of(const State& state, const Node& node) {
  if (is_quarantined(node)) return NodeRole::kQuarantined;
  const bool has_ranks = state.index.ranks.contains(node.key);
  if (node.state == NodeState::kDown) return NodeRole::kLost;
  if (has_ranks) return NodeRole::kActive;
  return is_lost(node) ? NodeRole::kLost : NodeRole::kSpare;
}

bool is_stopping(const State& state, const Node& node) {
  return node.state == NodeState::kUp &&
         state.index.open.contains({node.key.job, ActionKind::kStopWorkers, node.key.name});
}

std::vector<Node*> nodes_missing(Transition& t, const Job& job, size_t most) {
  std::vector<Node*> missing;
  const auto collect = [&](const std::set<NodeKey>& keys, bool only_up) {
    for (const NodeKey& key : KeysOf(keys, job.id)) {
      if (missing.size() == most) return;
      Node& node = t.state().nodes.at(key);
      if (only_up && node.state != NodeState::kUp) continue;
      if (t.has_ranks(key)) missing.push_back(&node);
    }
  };
  collect(t.state().index.not_up, false);
  collect(t.state().index.quarantined, true);
  return missing;
}

bool has_spare(Transition& t, const Job& job) {
  return allows(job, kOnNodeLossSpare) && !find_spares(t, job).empty();
}

bool has_lasting_spare(Transition& t, const Job& job) {
  if (!allows(job, kOnNodeLossSpare)) return false;
  const std::vector<Node*> spares = find_spares(t, job);
  return !spares.empty() && spares.front()->scheduler_note.empty();
}

int64_t launch_patience(Transition& t, const Job& job) {
  const auto shrinks = [&] {
    const auto left = job.nodes() - static_cast<int32_t>(nodes_missing(t, job).size());
    return largest_fit(job, job.spec.fewest_nodes(), left) != 0;
  };
  const auto requeues = [&] { return requeue_conflict(t, job).empty(); };
  const bool does_something = (allows(job, kOnNodeLossShrink) && shrinks()) ||
                              (allows(job, kOnNodeLossRequeue) && requeues());
  return does_something ? kLaunchesBeforePolicy : kMaxLaunchAttempts;
}

void relieve(Transition& t, Job& job, const std::vector<std::string>& slow) {
  if (!allows(job, kOnNodeLossSpare)) return;
  const std::vector<Node*> spares = find_spares(t, job);
  for (size_t i = 0; i < std::min(slow.size(), spares.size()); ++i) {
    const std::vector<Slot*> slots = t.slots(*t.node(job.id, slow[i]));
    const std::string text = spares[i]->key.name + " takes " + ranks_text(slots) + " of " +
                             slow[i] + ", whose workers take long to end";
    bind_all(t, slots, spares[i]->key.name);
    t.note("SparePromoted", job, text, spares[i]->key.name);
  }
}

bool can_promote(Transition& t, const Job& job) {
  return may_move_ranks(job) && !find_spares(t, job).empty() && !find_vacated(t, job, 1).empty();
}

void promote_spares(Transition& t, Job& job) {
  if (!may_move_ranks(job)) return;
  const std::vector<Node*> spares = find_spares(t, job);
  if (spares.empty()) return;
  const std::vector<Node*> vacated = find_vacated(t, job, spares.size());
  for (size_t i = 0; i < vacated.size(); ++i) {
    const std::vector<Slot*> slots = t.slots(*vacated[i]);
    const std::string text = spares[i]->key.name + " takes " + ranks_text(slots) + " of " +
                             vacated[i]->key.name + " (" + why_vacated(*vacated[i]) + ")";
    bind_all(t, slots, spares[i]->key.name);
    t.note("SparePromoted", job, text, spares[i]->key.name);
    recover_hardware(t, job, *vacated[i], true);
  }
}

bool can_grow(Transition& t, const Job& job) {
  if (job.nodes() == job.spec.nodes || !job.spec.train || !is_training(job)) return false;
  if (job.cancel_requested || !has_progressed(t, job)) return false;
  std::vector<Node*> spares = find_spares(t, job);
  // The pause must be as short as with standbys, not as long as with new processes.
  std::erase_if(spares, [](const Node* n) {
    return !n->connected || !n->scheduler_note.empty() || (n->tells_ready && !n->is_ready);
  });
  return grown_by(job, spares) > job.nodes();
}

void grow_at_boundary(Transition& t, Job& job) {
  const int32_t nodes = grown_by(job, find_spares(t, job));
  recover_in_order(t, job,
                   "a node is back: the job goes on with " + std::to_string(nodes) + " nodes");
}

void grow(Transition& t, Job& job) {
  if (job.nodes() == job.spec.nodes || !nodes_missing(t, job, 1).empty()) return;
  const std::vector<Node*> spares = find_spares(t, job);
  const int32_t before = job.nodes();
  const int32_t nodes = grown_by(job, spares);
  for (int32_t group = before; group < nodes; ++group) {
    bind_all(t, group_slots(t, job, group), spares[static_cast<size_t>(group - before)]->key.name);
  }
  if (nodes <= before) return;
  job.active_nodes = nodes;
  t.changed(job);
  t.note("WorldGrown", job, "goes on with " + std::to_string(nodes) + " nodes again");
}

void give_up_node(Transition& t, Job& job, Node& node, const Fault& fault) {
  // Only the first time is news; the rest is patience.
  const bool tell = node.launch_attempts == launch_patience(t, job);
  const std::string what =
      node.key.name + " did not come back in " + std::to_string(node.launch_attempts) + " attempts";
  if (apply_policy(t, job, what, tell)) {
    if (t.has_ranks(node.key)) t.set_deadline(node, t.now() + kBackoffMaxMs);
    return;
  }
  fault_seen(t, job, fault, FaultKind::kRepeated);
}

void vacate_quarantined(Transition& t, Job& job) {
  int64_t again_ms = kWaitAgainMs;
  bool waits = false;
  for (Node* node : nodes_missing(t, job)) {
    const bool comes_back = node->state != NodeState::kUp && !node->taken;
    if (comes_back || !t.has_ranks(node->key)) continue;
    const Quarantine& q = node->quarantine;
    // As yet, and better than to wait or to have fewer nodes.
    const bool works = q.by == kByScheduler || q.by == kByStraggling;
    if (works && node->state == NodeState::kUp) {
      t.note("NodeReleased", job, node->key.name + " keeps its ranks: no spare is up any more",
             node->key.name);
      t.set_quarantine(*node, {});
      continue;
    }
    const int64_t left_ms = q.until_wall_ms - t.event().wall_ms;
    const bool quarantined = is_quarantined(*node);
    const std::string what =
        node->key.name + (quarantined ? " is quarantined" : " was taken from the job");
    if (!apply_policy(t, job, what, true) && quarantined && q.until_wall_ms == 0) {
      end_job(t, job, JobState::kFailed,
              node->key.name + " is quarantined (" + q.reason +
                  ") and nothing can take its place; hpctl nodes release " + node->key.name +
                  ", or add nodes.spares" + describe_steps_at_risk(job));
    }
    if (job.stage != PlanStage::kWaitNodes) return;
    if (!t.has_ranks(node->key)) continue;
    waits = true;
    if (q.until_wall_ms != 0) again_ms = std::min(again_ms, std::max<int64_t>(left_ms, 1));
  }
  if (waits && job.deadline_ms == 0) t.set_deadline(job, t.now() + again_ms);
}

void tell_spares_left(Transition& t, const Job& job, const Node& taken) {
  if (has_ended(job.state)) return;
  const size_t left = find_spares(t, job).size();
  t.note("SpareTaken", job,
         taken.key.name + " was taken from the job, whose allocation does not grow again; " +
             (left == 0 ? std::string("it has no spare any more")
                        : "spares that are up: " + std::to_string(left)),
         taken.key.name);
}

bool can_vacate(Transition& t, const Job& job, const Node& node) {
  if (!t.has_ranks(node.key) || has_spare(t, job) || allows(job, kOnNodeLossWait)) return true;
  if (allows(job, kOnNodeLossRequeue) && job.backend.requeues && job.requeue_refusal.empty()) {
    return true;
  }
  const auto missing = static_cast<int32_t>(nodes_missing(t, job).size());
  return allows(job, kOnNodeLossShrink) &&
         largest_fit(job, job.spec.fewest_nodes(), job.nodes() - missing - 1) != 0;
}

namespace {

int32_t nodes_left(Transition& t, const Job& job) {
  return job.nodes() - static_cast<int32_t>(nodes_missing(t, job).size());
}

// The word of recovery.on_node_loss by which the job goes on with so many nodes; "" = none.
std::string way_on(Transition& t, const Job& job, int32_t left) {
  for (const std::string& word : job.spec.recovery.on_node_loss) {
    if (word == kOnNodeLossSpare && !has_spare(t, job)) continue;
    if (word == kOnNodeLossShrink && largest_fit(job, job.spec.fewest_nodes(), left) == 0) continue;
    const bool requeues = job.backend.requeues && job.requeue_refusal.empty();
    if (word == kOnNodeLossRequeue && !requeues) continue;
    return word;
  }
  return "";
}

}  // namespace

std::string unasked_requeue(Transition& t, const Job& job, const Node& node, bool asks_first) {
  if (!asks_first || !t.has_ranks(node.key) || !node.quarantine.by.empty()) return "";
  if (way_on(t, job, nodes_left(t, job) - 1) != kOnNodeLossRequeue) return "";
  return node.key.name +
         " has ranks and no spare is up: the job would be requeued and wait in the queue; with "
         "--yes it is";
}

std::string consequence_of_leaving(Transition& t, const Job& job, const Node& node) {
  if (!t.has_ranks(node.key)) return "";
  const int32_t left = nodes_left(t, job);
  const std::string way = way_on(t, job, left);
  if (way == kOnNodeLossSpare) return "; a spare takes its ranks";
  if (way == kOnNodeLossShrink) {
    return "; no spare is up, the job goes on with " +
           std::to_string(largest_fit(job, job.spec.fewest_nodes(), left)) + " nodes";
  }
  if (way == kOnNodeLossRequeue) {
    // As is_to_be_excluded() has it.
    const bool comes_back =
        node.recovery_wall_ms != 0 || (node.quarantine.hardware && job.backend.replaces);
    return "; no spare is up, the job is REQUEUED and waits in the queue" +
           std::string(comes_back ? " for it" : "; this node is excluded");
  }
  return way == kOnNodeLossWait ? "; no spare is up, the job waits for it" : "";
}

bool exclude_again(Transition& t, Job& job, const RequeueCarryover& former) {
  std::vector<std::string> given;
  for (const std::string& name : former.excluded) {
    const Node* node = t.node(job.id, name);
    if (node != nullptr && t.has_ranks(node->key)) given.push_back(name);
  }
  if (given.empty() || !job.backend.requeues) return false;
  const std::string what = "the scheduler gave " + join_some(given) +
                           " although the job was requeued without, and no spare is left";
  if (former.exclusion_attempt >= kExclusionAttempts) {
    refuse_requeue(t, job, what + "; asked " + std::to_string(former.exclusion_attempt) + " times");
    return false;
  }
  t.note("ExclusionNotTaken", job, what);
  issue_requeue(t, job,
                {job.id, former.excluded, job.backend.restart_count, quarantined_nodes(t, job),
                 former.exclusion_attempt + 1});
  return true;
}

void save_for_requeue(Transition& t, Job& job, const std::string& reason) {
  job.at_limit = true;
  job.state = JobState::kRecovering;
  job.reason = reason;
  job.fault_seq = t.seq();
  t.changed(job);
  t.note("JobRecovering", job, job.reason);
  t.facts(job.id).stop_workers = job.stage != PlanStage::kRequeue;
}

void requeue_saved(Transition& t, Job& job) {
  t.note("RequeueAtLimit", job,
         "life " + std::to_string(job.backend.restart_count + 1) +
             " of the job ends with the time limit, the next waits in the queue" +
             describe_unsaved(t, job));
  issue_requeue(t, job, {job.id, {}, job.backend.restart_count, quarantined_nodes(t, job)});
}

void refuse_requeue(Transition& t, Job& job, const std::string& reason) {
  job.requeue_refusal = reason;
  t.changed(job);
  t.note("NotPossible", job, "requeue: " + reason);
}

void on(Transition& t, const JobRequeued& e) {
  if (t.open<RequeueJob>(e.action) == nullptr) {
    t.refuse(e.job, "requeue " + to_string(e.action) + " was withdrawn or answered before");
    return;
  }
  t.close(e.action);
  Job& job = *t.job(e.job);
  if (job.stage == PlanStage::kRequeue) enter_stage(t, job, PlanStage::kRequeue);
}

void on(Transition& t, const ControllerNoted& e) {
  if (t.job(e.job) == nullptr) t.refuse(e.job, "there is no job " + to_string(e.job));
}

void on(Transition& t, const SchedulerObserved& e) {
  Job* job = t.job(e.job);
  if (job == nullptr || has_ended(job->state)) {
    t.refuse(e.job, "there is no live job " + to_string(e.job));
    return;
  }
  const std::string note = e.unusable ? e.what : "";
  if (Node* node = t.node(e.job, e.node); node != nullptr && node->scheduler_note != note) {
    t.set_scheduler_note(*node, note);
    if (note.empty()) end_drain(t, *job, *node);
  }
  if (job->scheduler_note == e.what) {  // the scheduler repeats itself; the history does not
    t.result().refusal = "was known";
    t.result().log.clear();
    return;
  }
  job->scheduler_note = e.what;
  t.changed(*job);
}

}  // namespace hpctl::core
