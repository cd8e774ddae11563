// SPDX-License-Identifier: Apache-2.0
#include "controller/core/transition.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "controller/core/withdrawn_records.h"

namespace hpctl::core {

namespace {

template <typename Map, typename Key>
auto* find_row(Map& map, const Key& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

void index_deadline(Index& index, int64_t from, int64_t to, JobId job, const std::string& node) {
  if (from != 0) index.deadlines.erase({from, job, node});
  if (to != 0) index.deadlines.insert({to, job, node});
}

void index_job(Index& index, const Job& row) {
  index_deadline(index, 0, row.deadline_ms, row.id, "");
  if (!row.submit_key.empty()) index.submit_keys[{row.owner_uid, row.submit_key}] = row.id;
  if (has_ended(row.state)) return;
  index.live_names[row.spec.name] = row.id;
  const std::string& dir = row.spec.checkpoint.dir;
  if (!dir.empty()) index.live_checkpoint_dirs[dir] = row.id;
}

template <typename Key>
void set_member(std::set<Key>& set, const Key& key, bool is_member) {
  if (is_member) {
    set.insert(key);
  } else {
    set.erase(key);
  }
}

// The consequences of its state, and of whether it has ranks.
void index_use(Index& index, const Node& row) {
  const bool is_up = row.state == NodeState::kUp;
  set_member(index.not_up, row.key, !is_up);
  set_member(index.lost, row.key, is_lost(row));
  set_member(index.idle, row.key, is_up && !index.ranks.contains(row.key));
}

void index_node(Index& index, const Node& row) {
  index_deadline(index, 0, row.deadline_ms, row.key.job, row.key.name);
  index_use(index, row);
  if (!row.quarantine.by.empty()) index.quarantined.insert(row.key);
  if (!row.scheduler_note.empty()) index.unwanted.insert(row.key);
}

void index_slot(Index& index, const Slot& row) {
  if (row.node.empty()) return;
  index.ranks[{row.key.job, row.node}].push_back(row.key.rank);
  if (!is_finished(row)) index.unfinished.insert(row.key);
  if (row.unaccounted) index.unaccounted.insert(row.key);
}

void index_action(Index& index, const Action& action) {
  const Target target = target_of(action.body);
  index.open[{target.job, target.kind, target.node}] = action.id;
}

}  // namespace

bool is_lost(const Node& node) {
  return node.state == NodeState::kDown ||
         (node.state == NodeState::kLaunching && node.launches > 1);
}

bool is_finished(const Slot& slot) {
  return slot.state == SlotState::kExited && slot.exit_code == 0 && slot.signal == 0;
}

Target target_of(const ActionBody& body) {
  return std::visit(
      [&](const auto& a) {
        const auto kind = static_cast<ActionKind>(body.index());
        if constexpr (requires { a.node; }) {
          return Target{a.job, kind, a.node};
        } else {
          return Target{a.job, kind, ""};
        }
      },
      body);
}

void rebuild_index(State& state) {
  state.index = Index{};
  for (const auto& [id, row] : state.jobs) index_job(state.index, row);
  for (const auto& [key, row] : state.slots) index_slot(state.index, row);
  for (const auto& [key, row] : state.nodes) index_node(state.index, row);
  for (const auto& [id, action] : state.outbox) index_action(state.index, action);
}

std::set<JobId> Transition::touched() const {
  std::set<JobId> jobs = answered_;
  jobs.insert(result_.dirty.jobs.begin(), result_.dirty.jobs.end());
  for (const NodeKey& key : result_.dirty.nodes) jobs.insert(key.job);
  for (const SlotKey& key : result_.dirty.slots) jobs.insert(key.job);
  for (const auto& [id, facts] : facts_) jobs.insert(id);
  return jobs;
}

Job* Transition::job(JobId id) { return find_row(state_.jobs, id); }
Node* Transition::node(JobId job, const std::string& name) {
  return find_row(state_.nodes, NodeKey{job, name});
}
Slot* Transition::slot(JobId job, Rank rank) { return find_row(state_.slots, SlotKey{job, rank}); }

std::vector<Node*> Transition::nodes(JobId job) {
  std::vector<Node*> found;
  for (auto it = state_.nodes.lower_bound({job, ""});
       it != state_.nodes.end() && it->first.job == job; ++it) {
    found.push_back(&it->second);
  }
  return found;
}

std::vector<Slot*> Transition::slots(const Node& node) {
  std::vector<Slot*> found;
  const auto it = state_.index.ranks.find(node.key);
  if (it == state_.index.ranks.end()) return found;
  for (const Rank rank : it->second) found.push_back(slot(node.key.job, rank));
  return found;
}

Job& Transition::add(Job row) {
  index_job(state_.index, row);
  result_.dirty.jobs.insert(row.id);
  const JobId id = row.id;
  return state_.jobs.insert_or_assign(id, std::move(row)).first->second;
}

Node& Transition::add(Node row) {
  index_node(state_.index, row);
  result_.dirty.nodes.insert(row.key);
  const NodeKey key = row.key;
  return state_.nodes.insert_or_assign(key, std::move(row)).first->second;
}

void Transition::add(Slot row) {
  index_slot(state_.index, row);
  result_.dirty.slots.insert(row.key);
  state_.slots.insert_or_assign(row.key, std::move(row));
}

void Transition::set_deadline(Job& row, int64_t deadline_ms) {
  index_deadline(state_.index, row.deadline_ms, deadline_ms, row.id, "");
  row.deadline_ms = deadline_ms;
  changed(row);
}

void Transition::set_deadline(Node& row, int64_t deadline_ms) {
  index_deadline(state_.index, row.deadline_ms, deadline_ms, row.key.job, row.key.name);
  row.deadline_ms = deadline_ms;
  if (deadline_ms != 0) row.deadline_seq = seq();
  changed(row);
}

void Transition::set_state(Node& row, NodeState state, const std::string& reason) {
  row.state = state;
  row.reason = reason;
  index_use(state_.index, row);
  changed(row);
}

void Transition::set_slot(Slot& row, SlotState state, Generation generation, uint64_t pid,
                          int32_t exit_code, int32_t signal) {
  row.state = state;
  row.generation = generation;
  row.pid = pid;
  row.exit_code = exit_code;
  row.signal = signal;
  row.unaccounted = false;
  row.seals = {};
  row.arena_boot_id.clear();
  set_member(state_.index.unfinished, row.key, !is_finished(row) && !row.node.empty());
  state_.index.unaccounted.erase(row.key);
  result_.dirty.slots.insert(row.key);
}

void Transition::set_unaccounted(Slot& row, bool unaccounted) {
  if (row.unaccounted == unaccounted) return;
  row.unaccounted = unaccounted;
  set_member(state_.index.unaccounted, row.key, unaccounted && !row.node.empty());
  result_.dirty.slots.insert(row.key);
}

void Transition::set_seals(Slot& row, const ArenaSeals& seals, const std::string& boot_id) {
  row.seals = seals;
  row.arena_boot_id = boot_id;
  result_.dirty.slots.insert(row.key);
}

void Transition::bind(Slot& row, const std::string& node) {
  auto& ranks = state_.index.ranks;
  const NodeKey former{row.key.job, row.node};
  if (const auto it = ranks.find(former); it != ranks.end()) {
    std::erase(it->second, row.key.rank);
    if (it->second.empty()) ranks.erase(it);
  }
  row.node = node;
  if (!node.empty()) {
    std::vector<Rank>& bound = ranks[{row.key.job, node}];
    bound.insert(std::lower_bound(bound.begin(), bound.end(), row.key.rank), row.key.rank);
  }
  for (const NodeKey& key : {former, NodeKey{row.key.job, node}}) {
    if (const auto it = state_.nodes.find(key); it != state_.nodes.end()) {
      index_use(state_.index, it->second);
    }
  }
  const ArenaSeals seals = std::move(row.seals);
  const std::string boot_id = std::move(row.arena_boot_id);
  set_slot(row, SlotState::kPending, row.generation, 0, 0, 0);
  set_seals(row, seals, boot_id);
}

void Transition::set_quarantine(Node& row, const Quarantine& quarantine) {
  row.quarantine = quarantine;
  set_member(state_.index.quarantined, row.key, !quarantine.by.empty());
  changed(row);
}

void Transition::set_scheduler_note(Node& row, const std::string& note) {
  row.scheduler_note = note;
  set_member(state_.index.unwanted, row.key, !note.empty());
  changed(row);
}

void Transition::release_names(const Job& row) {
  state_.index.live_names.erase(row.spec.name);
  const std::string& dir = row.spec.checkpoint.dir;
  if (!dir.empty()) state_.index.live_checkpoint_dirs.erase(dir);
}

void Transition::issue(ActionBody body, const std::string& reason) {
  const Target target = target_of(body);
  withdraw(target.job, target.kind, target.node);
  const ActionId id{seq(), static_cast<uint32_t>(result_.actions.size())};
  const Action action{id, reason, std::move(body)};
  index_action(state_.index, action);
  result_.dirty.outbox.insert(id);
  result_.actions.push_back(action);
  state_.outbox.emplace(id, action);
}

bool Transition::any_open(JobId job, ActionKind kind) const {
  const auto it = state_.index.open.lower_bound({job, kind, ""});
  return it != state_.index.open.end() && std::get<0>(it->first) == job &&
         std::get<1>(it->first) == kind;
}

const Action* Transition::open(JobId job, ActionKind kind, const std::string& node) const {
  const auto it = state_.index.open.find({job, kind, node});
  return it == state_.index.open.end() ? nullptr : &state_.outbox.at(it->second);
}

void Transition::close(ActionId id) {
  const auto it = state_.outbox.find(id);
  HP_CHECK(it != state_.outbox.end());
  const Target target = target_of(it->second.body);
  answered_.insert(target.job);
  state_.index.open.erase({target.job, target.kind, target.node});
  state_.outbox.erase(it);
  result_.dirty.outbox.insert(id);
}

void Transition::withdraw(JobId job, ActionKind kind, const std::string& node) {
  if (const Action* action = open(job, kind, node)) drop(action->id);
}

void Transition::drop(ActionId id) {
  remember_withdrawn(*this, state_.outbox.at(id));
  close(id);
}

void Transition::withdraw_all(JobId job, ActionKind kind) {
  for (;;) {
    const auto it = state_.index.open.lower_bound({job, kind, ""});
    if (it == state_.index.open.end() || std::get<0>(it->first) != job ||
        std::get<1>(it->first) != kind) {
      return;
    }
    drop(ActionId(it->second));
  }
}

LogEntry& Transition::note(const std::string& type, const Job& job, const std::string& cause,
                           const std::string& node, int32_t rank) {
  return result_.log.emplace_back(
      LogEntry{seq(), type, job.id, job.generation, node, rank, cause, seq()});
}

LogEntry& Transition::note_because(Seq because, const std::string& type, const Job& job,
                                   const std::string& cause, const std::string& node) {
  return result_.log.emplace_back(
      LogEntry{seq(), type, job.id, job.generation, node, -1, cause, because});
}

void Transition::refuse(JobId job, const std::string& reason, const std::string& node,
                        int32_t rank) {
  result_.refusal = reason;
  result_.log.push_back({seq(), "Refused", job, Generation{}, node, rank, reason, seq()});
}

}  // namespace hpctl::core
