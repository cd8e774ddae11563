// SPDX-License-Identifier: Apache-2.0
// A controller that has none of the job's rows takes it over. The newest record of the lineage
// names the generation and its members; the agents report which workers are alive. Three cases:
//   every member's workers are alive:  RUNNING, nothing was disturbed
//   the record is there and no node has started it:  the next generation, without a restart counted
//   a member is gone, or one of its workers:  a fault like any other
// When the job has other nodes now (it was requeued), no worker of the generation can be alive, and
// the next one is prepared at once.
#include <algorithm>
#include <set>

#include "controller/core/lost_time.h"
#include "controller/core/membership.h"
#include "controller/core/plan.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

// The members must be what the rules make: ranks 0, 1, ..., a node for each block of
// workers_per_node. They come from a file.
std::string find_member_problem(const JobAdopted& e) {
  std::set<std::string> seen;
  for (size_t i = 0; i < e.members.size(); ++i) {
    const auto& [rank, node] = e.members[i];
    if (rank != Rank{static_cast<int32_t>(i)}) return "its ranks are not 0, 1, ...";
    const size_t first = i - i % static_cast<size_t>(e.spec.workers_per_node);
    if (node != e.members[first].second) {
      return "rank " + to_string(rank) + " is on " + node + ", apart from its group";
    }
    if (i == first && (node.empty() || !seen.insert(node).second)) {
      return "'" + node + "' has more than one group";
    }
  }
  return "";
}

std::string find_conflict(const State& state, const JobAdopted& e) {
  if (e.job == JobId{}) return "an adopted job needs its number";
  if (state.jobs.contains(e.job)) return "job " + to_string(e.job) + " is known here";
  const auto problems = find_problems(e.spec);
  if (!problems.empty()) return problems.front().key + ": " + problems.front().message;
  const std::set<std::string> names(e.nodes.begin(), e.nodes.end());
  if (names.size() != e.nodes.size() || names.contains("")) return "node names must differ";
  if (const std::string problem = find_member_problem(e); !problem.empty()) {
    return "the record of generation " + to_string(e.generation) + " is damaged: " + problem;
  }
  const auto world = static_cast<int32_t>(e.members.size());
  if (world > e.spec.world_size() || world % e.spec.workers_per_node != 0) {
    return "the record of generation " + to_string(e.generation) + " has " + std::to_string(world) +
           " members, which does not fit the job";
  }
  const int32_t needed = world / e.spec.workers_per_node;
  if (static_cast<int32_t>(names.size()) < needed) {
    return "generation " + to_string(e.generation) + " needs " + std::to_string(needed) +
           " nodes, the job has " + std::to_string(names.size());
  }
  return "";
}

Job make_job(const Transition& t, const JobAdopted& e) {
  Job job;
  job.id = e.job;
  job.spec = e.spec;
  job.owner_uid = e.uid;
  job.submit_key = e.submit_key;
  job.backend = e.backend;
  job.limits = resolve(e.spec.limits, e.backend.limits);
  const auto nodes = static_cast<int32_t>(e.members.size()) / e.spec.workers_per_node;
  job.active_nodes = nodes == e.spec.nodes ? 0 : nodes;
  job.state = JobState::kRecovering;
  job.reason = e.cause;
  job.fault = e.cause;
  job.fault_seq = t.seq();
  job.generation = job.directory_generation = e.generation;
  job.pruning.recorded_ms = t.now();
  job.checkpoint = e.checkpoint;
  job.memory_of = e.memory_of;
  job.start_step = job.progress_at_restart = job.start_at_restart = e.start_step;
  // The memory that a generation began with is on no disk.
  const bool from_memory = e.memory_of != Generation{};
  job.committed_step = from_memory ? e.committed_step : std::max(e.start_step, e.committed_step);
  job.furthest_step = std::max({e.furthest_step, e.start_step, e.committed_step});
  job.damaged.insert(e.damaged.begin(), e.damaged.end());
  job.restarts = e.restarts;
  for (const int64_t age : e.restart_ages_ms) job.restart_times_ms.push_back(t.now() - age);
  job.restarts_without_progress =
      std::min(e.restarts_without_progress, kMaxRestartsWithoutProgress);
  job.submitted_wall_ms = t.event().wall_ms;
  continue_totals(t, job, e.totals);
  return job;
}

bool is_excluded(const JobAdopted& e, const std::string& node) {
  return std::find(e.former.excluded.begin(), e.former.excluded.end(), node) !=
         e.former.excluded.end();
}

// The members' groups stay where they are; a group whose node the job no longer has, or was not to
// have, goes to one that has none. Nodes that were to be excluded come last.
std::map<Rank, std::string> place_members(const JobAdopted& e) {
  std::vector<std::string> nodes = e.nodes;
  const auto unwanted = std::stable_partition(
      nodes.begin(), nodes.end(), [&](const std::string& node) { return !is_excluded(e, node); });
  const std::set<std::string> present(nodes.begin(), unwanted);
  std::set<std::string> bound;
  for (const auto& [rank, node] : e.members) {
    if (!is_excluded(e, node)) bound.insert(node);
  }
  std::map<std::string, std::string> substitute;
  std::map<Rank, std::string> placed;
  auto next = nodes.begin();
  for (const auto& [rank, node] : e.members) {
    if (!present.contains(node) && !substitute.contains(node)) {
      while (bound.contains(*next)) ++next;
      substitute[node] = *next++;
    }
    placed[rank] = substitute.contains(node) ? substitute[node] : node;
  }
  return placed;
}

void add_slots(Transition& t, const Job& job, const std::map<Rank, std::string>& placed) {
  for (int32_t rank = 0; rank < job.spec.world_size(); ++rank) {
    Slot slot;
    slot.key = {job.id, Rank{rank}};
    slot.generation = job.generation;
    if (const auto it = placed.find(Rank{rank}); it != placed.end()) slot.node = it->second;
    t.add(std::move(slot));
  }
}

void add_nodes(Transition& t, const Job& job, const JobAdopted& e) {
  for (const std::string& name : e.nodes) {
    Node row;
    row.key = {e.job, name};
    row.reason = "expected since the job was taken over";
    row.launch_seq = t.seq();
    remember_node(row, e.former.quarantined);
    t.set_deadline(t.add(std::move(row)), t.now() + job.limits.register_ms);
  }
}

bool lacks_members(const JobAdopted& e) {
  const std::set<std::string> nodes(e.nodes.begin(), e.nodes.end());
  return std::any_of(e.members.begin(), e.members.end(), [&](const auto& member) {
    return is_excluded(e, member.second) || !nodes.contains(member.second);
  });
}

// All agents notice within 4 s of each other that their controller is gone. A node that is still
// silent a while after nearly all have come is lost, most likely with the controller that it ran.
void hurry_the_rest(Transition& t, const Job& job) {
  constexpr size_t kMostSilent = 8;
  constexpr int64_t kRestMs = 5'000;
  std::vector<Node*> silent;
  for (const NodeKey& key : KeysOf(t.state().index.not_up, job.id)) {
    if (silent.size() == kMostSilent) return;
    silent.push_back(t.node(key.job, key.name));
  }
  if (2 * silent.size() > t.nodes(job.id).size()) return;
  for (Node* node : silent) {
    const int64_t due_ms = t.now() + kRestMs;
    if (node->state == NodeState::kLaunching && node->deadline_ms > due_ms) {
      t.set_deadline(*node, due_ms);
    }
  }
}

}  // namespace

void fill_from_lineage(JobAdopted& adoption, const std::vector<GenerationRecord>& records,
                       int64_t wall_ms) {
  if (records.empty()) return;
  const GenerationRecord& newest = records.back();
  adoption.generation = {newest.generation};
  adoption.start_step = adoption.furthest_step = newest.start_step;
  adoption.checkpoint = newest.checkpoint;
  if (newest.from_memory) adoption.memory_of = {newest.parent};
  for (const GenerationMember& member : newest.members) {
    adoption.members.emplace_back(Rank{member.rank}, member.node);
  }
  std::sort(adoption.members.begin(), adoption.members.end());
  adoption.damaged = newest.damaged;
  adoption.former.quarantined = newest.quarantined;
  // A record does not know whether that has been done.
  for (QuarantinedNode& node : adoption.former.quarantined) node.recovery_wall_ms = 0;
  adoption.restarts = newest.restarts_used;
  const auto chain = chain_of_newest(records);  // newest first
  int64_t used = newest.restarts_used;
  for (size_t i = 1; i <= chain.size(); ++i) {
    const int64_t before = i < chain.size() ? chain[i].restarts_used : 0;
    const int64_t age = std::max<int64_t>(0, wall_ms - chain[i - 1].created_wall_ms);
    for (; used > before; --used) adoption.restart_ages_ms.push_back(age);
  }
  std::reverse(adoption.restart_ages_ms.begin(), adoption.restart_ages_ms.end());
  for (size_t i = 1; i < chain.size() && chain[i].start_step == newest.start_step &&
                     of_same_job(chain[i], newest);
       ++i) {
    const bool restarted = chain[i - 1].restarts_used > chain[i].restarts_used;
    adoption.restarts_without_progress += restarted ? 1 : 0;
  }
}

void on(Transition& t, const JobAdopted& e) {
  if (const std::string conflict = find_conflict(t.state(), e); !conflict.empty()) {
    t.refuse(e.job, conflict);
    return;
  }
  if (e.generation == Generation{}) {
    on(t, JobSubmitted{e.spec, e.uid, e.submit_key, e.job, e.nodes, e.backend, e.former, e.totals});
    return;
  }
  Job& job = t.add(make_job(t, e));
  t.result().submitted = job.id;
  add_slots(t, job, place_members(e));
  add_nodes(t, job, e);
  if (lacks_members(e)) {
    begin_waiting(t, job);
    if (exclude_again(t, job, e.former)) return;
    enter_stage(t, job, PlanStage::kWaitNodes);
    t.facts(job.id).look_again = true;
  } else {
    enter_stage(t, job, PlanStage::kMeetNodes);
    t.note("MeetNodes", job,
           "waiting for the agents of " + std::to_string(e.nodes.size()) + " nodes");
  }
}

void meet_workers(Transition& t, const Job& job, Node& node, const AgentRegistered& e) {
  if (job.stage != PlanStage::kMeetNodes) return;
  hurry_the_rest(t, job);
  if (e.generation_seen < job.generation) return;
  for (Slot* slot : t.slots(node)) {
    if (slot->state != SlotState::kPending) continue;
    const auto live = std::find_if(e.workers.begin(), e.workers.end(), [&](const LiveWorker& w) {
      return w.rank == slot->key.rank && w.generation == job.generation;
    });
    if (live != e.workers.end()) {
      t.set_slot(*slot, SlotState::kRunning, job.generation, live->pid, 0, 0);
    } else {
      t.set_unaccounted(*slot, true);  // its exit is reported now, or was to the controller before
    }
  }
}

bool members_are_met(Transition& t, const Job& job) {
  for (const NodeKey& key : KeysOf(t.state().index.not_up, job.id)) {
    if (t.has_ranks(key)) return false;
  }
  // The report of an exit, or the deadline of its node, decides.
  const KeysOf unaccounted(t.state().index.unaccounted, job.id);
  return !(unaccounted.begin() != unaccounted.end());
}

void end_meeting(Transition& t, Job& job) {
  const std::string name = "generation " + to_string(job.generation);
  std::vector<std::string> fresh;
  size_t members = 0;
  for (Node* node : t.nodes(job.id)) {
    if (!t.has_ranks(node->key)) continue;
    ++members;
    if (node->generation_seen < job.generation) fresh.push_back(node->key.name);
  }
  if (fresh.size() == members) {
    // Another number for it, because it is unknown whether a part of it ran before all nodes were
    // lost.
    t.note("StartsAnew", job, "no node runs " + name + "; its ranks are started again");
    begin_waiting(t, job);
    t.facts(job.id).stop_workers = true;
  } else if (!fresh.empty()) {
    const std::string what = join_some(fresh) + " had not started " + name + ", others had";
    fault_seen(t, job, Fault{what, fresh.front(), -1, job.furthest_step, t.seq()},
               FaultKind::kCause);
  } else {
    enter_stage(t, job, PlanStage::kNone);
    if (job.state == JobState::kRunning) return;
    enter_running(t, job, name + " goes on under another controller");
  }
}

}  // namespace hpctl::core
