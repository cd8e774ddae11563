// SPDX-License-Identifier: Apache-2.0
// Rows that were loaded from a file: rules follow from one row to another without looking, and
// count with what they find. Here is what must hold for that, checked once, before the first rule
// runs.
#include <set>

#include "common/base/plausible.h"
#include "controller/core/core.h"
#include "controller/core/transition.h"

namespace hpctl::core {

namespace {

template <typename Body>
concept IsForANode = requires(const Body& body) {
  body.node;
};

template <typename Enum>
bool is_one_of(Enum value, Enum last) {
  return static_cast<int>(value) >= 0 && static_cast<int>(value) <= static_cast<int>(last);
}

std::string find_damaged_number(const Job& job) {
  if (!is_one_of(job.state, JobState::kCancelled) || !is_one_of(job.stage, PlanStage::kRequeue)) {
    return "it is in a state that there is not";
  }
  if (job.spec.name.empty()) return "it has no spec";
  for (const Generation generation :
       {job.generation, job.directory_generation, job.mirror.ordered.generation}) {
    if (generation.value > kMaxGeneration) return "generation " + to_string(generation);
  }
  for (const WithdrawnRecord& withdrawn : job.withdrawn) {
    if (withdrawn.generation.value > kMaxGeneration) {
      return "withdrawn generation " + to_string(withdrawn.generation);
    }
  }
  for (const uint64_t step : {job.start_step, job.furthest_step, job.committed_step}) {
    if (step > kMaxStep) return "step " + std::to_string(step);
  }
  if (job.active_nodes < 0 || job.active_nodes > job.spec.nodes) {
    return std::to_string(job.active_nodes) + " active nodes";
  }
  return "";
}

// Every rank has a slot; the slots of the present world form blocks with a node each.
std::string find_damaged_slot(const State& state, const Job& job) {
  std::set<std::string> bound;
  std::string group_node;
  for (int32_t rank = 0; rank < job.spec.world_size(); ++rank) {
    const auto it = state.slots.find(SlotKey{job.id, Rank{rank}});
    const std::string name = "rank " + std::to_string(rank);
    if (it == state.slots.end()) return name + " is missing";
    const Slot& slot = it->second;
    if (!is_one_of(slot.state, SlotState::kExited)) return name + " is in no state that there is";
    if (slot.generation.value > kMaxGeneration) return name + " of no generation that there is";
    if (rank >= job.world_size()) {
      if (!slot.node.empty()) return name + " has a node although it is out of the world";
      continue;
    }
    if (rank % job.spec.workers_per_node != 0) {
      if (slot.node != group_node) return name + " is apart from its group";
      continue;
    }
    group_node = slot.node;
    if (!state.nodes.contains(NodeKey{job.id, slot.node})) {
      return name + " is on a node '" + slot.node + "' that the job does not have";
    }
    if (!bound.insert(slot.node).second) return slot.node + " has more than one group";
  }
  const auto beyond = state.slots.lower_bound(SlotKey{job.id, Rank{job.spec.world_size()}});
  const auto first = state.slots.lower_bound(SlotKey{job.id, Rank{INT32_MIN}});
  if ((beyond != state.slots.end() && beyond->first.job == job.id) ||
      first->first.rank.value != 0) {
    return "there are ranks outside of the job";
  }
  return "";
}

std::string find_damaged_node(const State& state, const Job& job) {
  for (auto it = state.nodes.lower_bound(NodeKey{job.id, ""});
       it != state.nodes.end() && it->first.job == job.id; ++it) {
    if (!is_one_of(it->second.state, NodeState::kEnded)) {
      return it->first.name + " is in no state that there is";
    }
  }
  return "";
}

std::string find_damaged_action(const State& state, const Job& job) {
  std::set<std::pair<ActionKind, std::string>> open;
  for (const auto& [id, action] : state.outbox) {
    const Target target = target_of(action.body);
    if (target.job != job.id) continue;
    if (!open.insert({target.kind, target.node}).second) {
      return "action " + to_string(id) + " is there twice";
    }
    const bool is_for_a_node =
        std::visit([]<typename Body>(const Body&) { return IsForANode<Body>; }, action.body);
    if (is_for_a_node && !state.nodes.contains(NodeKey{job.id, target.node})) {
      return "action " + to_string(id) + " is for a node '" + target.node + "'";
    }
    const auto* record = std::get_if<RecordGeneration>(&action.body);
    if (record != nullptr &&
        (record->generation.value == 0 || record->generation.value > kMaxGeneration ||
         record->start_step > kMaxStep)) {
      return "generation " + to_string(record->generation) + " is to be recorded";
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> drop_strays(State& state) {
  std::vector<std::string> dropped;
  std::erase_if(state.nodes, [&](const auto& row) {
    const bool stray = !state.jobs.contains(row.first.job);
    if (stray) dropped.push_back("node " + row.first.name + " of job " + to_string(row.first.job));
    return stray;
  });
  std::erase_if(state.slots, [&](const auto& row) {
    const bool stray = !state.jobs.contains(row.first.job);
    if (stray) {
      dropped.push_back("rank " + to_string(row.first.rank) + " of job " +
                        to_string(row.first.job));
    }
    return stray;
  });
  std::erase_if(state.outbox, [&](const auto& row) {
    const JobId job = target_of(row.second.body).job;
    const bool stray = !state.jobs.contains(job);
    if (stray) dropped.push_back("action " + to_string(row.first) + " of job " + to_string(job));
    return stray;
  });
  return dropped;
}

std::string find_damage(const State& state, const Job& job) {
  for (const std::string& damage :
       {find_damaged_number(job), find_damaged_slot(state, job), find_damaged_node(state, job),
        find_damaged_action(state, job)}) {
    if (!damage.empty()) return damage;
  }
  return "";
}

}  // namespace hpctl::core
