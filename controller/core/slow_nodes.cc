// SPDX-License-Identifier: Apache-2.0
// The reaction to stragglers (straggler.h): they are reported, and, if recovery.straggler is evict,
// left for a spare, like a node that the scheduler drains. A job is worth more than its speed: a
// node is left only if a spare lasts, another restart is affordable, and not more than
// kMostEvictions were left lately. Such a node stays quarantined for as long as one with too many
// faults of its workers.
#include <algorithm>

#include "controller/core/membership.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

bool is_of(const Straggler& straggler, const std::string& node) { return straggler.node == node; }

// Why the report is not news about the present generation; "" = it is.
std::string find_conflict(const Job* job, JobId id, Generation generation) {
  if (job == nullptr) return "there is no job " + to_string(id);
  if (has_ended(job->state)) return "the job has ended";
  if (generation != job->generation || is_preparing(*job)) {
    return "generation " + to_string(generation) + " does not train any more";
  }
  return "";
}

void forget_former(Job& job) {
  std::erase_if(job.stragglers, [&](const Straggler& s) { return s.generation != job.generation; });
}

int evictions(Transition& t, const Job& job) {
  int count = 0;
  for (const NodeKey& key : KeysOf(t.state().index.quarantined, job.id)) {
    count += t.state().nodes.at(key).quarantine.by == kByStraggling ? 1 : 0;
  }
  return count;
}

}  // namespace

std::vector<Straggler> present_stragglers(const Job& job) {
  std::vector<Straggler> present;
  for (const Straggler& straggler : job.stragglers) {
    const bool holds = straggler.generation == job.generation && is_training(job);
    if (holds) present.push_back(straggler);
  }
  return present;
}

// As find_drained(): only what saves first loses nothing by moving.
Node* find_straggler(Transition& t, const Job& job) {
  const bool evicts = job.spec.recovery.straggler == StragglerPolicy::kEvict;
  if (!evicts || job.stragglers.empty() || job.cancel_requested) return nullptr;
  for (const Straggler& straggler : present_stragglers(job)) {
    Node* node = t.node(job.id, straggler.node);
    if (node->state != NodeState::kUp || !node->quarantine.by.empty()) continue;
    if (!t.has_ranks(node->key) || evictions(t, job) >= kMostEvictions) continue;
    return can_afford_restart(t, job) && has_lasting_spare(t, job) ? node : nullptr;
  }
  return nullptr;
}

void leave_straggler(Transition& t, Job& job) {
  Node& node = *find_straggler(t, job);
  const auto straggler = std::find_if(job.stragglers.begin(), job.stragglers.end(),
                                      [&](const Straggler& s) { return is_of(s, node.key.name); });
  const int64_t wall = t.event().wall_ms;
  quarantine(t, job, node,
             {kByStraggling, "it held the others up", straggler->evidence, false, wall,
              wall + kQuarantineForMs});
  vacate(t, job, node, node.key.name + " is left because it is slow; a spare takes its ranks",
         true);
}

void on(Transition& t, const StragglerFound& e) {
  Job* job = t.job(e.job);
  const Straggler& found = e.straggler;
  std::string conflict = find_conflict(job, e.job, found.generation);
  const Node* node = t.node(e.job, found.node);
  if (conflict.empty() && (node == nullptr || !t.has_ranks(node->key))) {
    conflict = found.node + " has no ranks";
  }
  if (!conflict.empty()) {
    t.refuse(e.job, conflict, found.node, found.rank);
    return;
  }
  forget_former(*job);
  std::erase_if(job->stragglers, [&](const Straggler& s) { return is_of(s, found.node); });
  const auto after = std::find_if(job->stragglers.begin(), job->stragglers.end(),
                                  [&](const Straggler& s) { return s.node > found.node; });
  job->stragglers.insert(after, found);
  t.changed(*job);
}

void on(Transition& t, const StragglerOver& e) {
  Job* job = t.job(e.job);
  std::string conflict = find_conflict(job, e.job, e.generation);
  if (conflict.empty()) {
    forget_former(*job);
    const auto erased =
        std::erase_if(job->stragglers, [&](const Straggler& s) { return is_of(s, e.node); });
    if (erased == 0) conflict = e.node + " was not known to be slow";
    t.changed(*job);
  }
  if (!conflict.empty()) t.refuse(e.job, conflict, e.node);
}

}  // namespace hpctl::core
