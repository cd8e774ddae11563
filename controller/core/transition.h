// SPDX-License-Identifier: Apache-2.0
// One Step in progress: the state, the event, and what has come of it so far. Every change of a row
// goes through a function here, which marks the row dirty and keeps State::index in line with it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "controller/core/core.h"
#include "controller/core/facts.h"

namespace hpctl::core {

class Transition {
 public:
  Transition(State& state, const Event& event, StepResult& result)
      : state_(state), event_(event), result_(result) {}

  State& state() { return state_; }
  const State& state() const { return state_; }
  const Event& event() const { return event_; }
  StepResult& result() { return result_; }
  int64_t now() const { return event_.now_ms; }
  Seq seq() const { return event_.seq; }

  // The event's facts about the job besides its rows; reconcile() draws the conclusions.
  Facts& facts(JobId id) { return facts_[id]; }
  void forget_facts(JobId id) { facts_.erase(id); }
  // Jobs with changed rows or new facts, in order: those to reconcile.
  std::set<JobId> touched() const;

  // Rows by key; nullptr when there is none. The pointer stays valid: rows are never erased.
  Job* job(JobId id);
  Node* node(JobId job, const std::string& name);
  Slot* slot(JobId job, Rank rank);
  // All nodes of the job, in order of name; the ranks bound to a node.
  std::vector<Node*> nodes(JobId job);
  std::vector<Slot*> slots(const Node& node);
  bool has_ranks(const NodeKey& node) const { return state_.index.ranks.contains(node); }

  // New rows.
  Job& add(Job row);
  Node& add(Node row);
  void add(Slot row);

  // Call after changing a row's plain fields; fields the index follows have setters below.
  void changed(const Job& row) { result_.dirty.jobs.insert(row.id); }
  void changed(const Node& row) { result_.dirty.nodes.insert(row.key); }

  void set_deadline(Job& row, int64_t deadline_ms);  // 0 = none
  void set_deadline(Node& row, int64_t deadline_ms);
  void set_state(Node& row, NodeState state, const std::string& reason);
  void set_slot(Slot& row, SlotState state, Generation generation, uint64_t pid, int32_t exit_code,
                int32_t signal);
  void set_unaccounted(Slot& row, bool unaccounted);
  // The boot id names the session of the node that the rank is bound to. set_slot() forgets them.
  void set_seals(Slot& row, const ArenaSeals& seals, const std::string& boot_id);
  // Moves the rank to another node; "" = out of the world. Its process, if any, is forgotten, and
  // what its arena has is not.
  void bind(Slot& row, const std::string& node);
  void set_quarantine(Node& row, const Quarantine& quarantine);
  void set_scheduler_note(Node& row, const std::string& note);
  // Ends the job's claim on its name and checkpoint directory.
  void release_names(const Job& row);

  // The outbox. At most one action of a kind is open per target: issuing withdraws the older one.
  void issue(ActionBody body, const std::string& reason);
  bool any_open(JobId job, ActionKind kind) const;
  const Action* open(JobId job, ActionKind kind, const std::string& node) const;
  template <typename Body>
  const Action* open(ActionId id) const {
    const auto it = state_.outbox.find(id);
    if (it == state_.outbox.end() || !std::holds_alternative<Body>(it->second.body)) return nullptr;
    return &it->second;
  }
  void close(ActionId id);  // acknowledged, moot or withdrawn
  void withdraw(JobId job, ActionKind kind, const std::string& node);
  void withdraw_all(JobId job, ActionKind kind);

  // A decision, told because of the present event, or of an earlier one.
  LogEntry& note(const std::string& type, const Job& job, const std::string& cause,
                 const std::string& node = "", int32_t rank = -1);
  LogEntry& note_because(Seq because, const std::string& type, const Job& job,
                         const std::string& cause, const std::string& node = "");
  // The event does not fit and changes nothing.
  void refuse(JobId job, const std::string& reason, const std::string& node = "",
              int32_t rank = -1);

 private:
  void drop(ActionId id);

  State& state_;
  const Event& event_;
  StepResult& result_;
  std::map<JobId, Facts> facts_;
  std::set<JobId> answered_;  // jobs of actions that left the outbox
};

// Target of an action, as the index knows it.
struct Target {
  JobId job;
  ActionKind kind;
  std::string node;  // "" = the job's own
};
Target target_of(const ActionBody& body);

// The job's keys in an index, in order. The index may lose none of them meanwhile.
template <typename Key>
class KeysOf {
 public:
  using Iterator = typename std::set<Key>::const_iterator;
  struct End {
    Iterator last;
    JobId job;
    friend bool operator!=(const Iterator& at, const End& end) {
      return at != end.last && at->job == end.job;
    }
  };

  KeysOf(const std::set<Key>& index, JobId job) : index_(index), job_(job) {}
  Iterator begin() const {
    Key first{};
    first.job = job_;
    return index_.lower_bound(first);
  }
  End end() const { return {index_.end(), job_}; }

 private:
  const std::set<Key>& index_;
  const JobId job_;
};

// True when the slot needs nothing more from its rank for the job to finish.
bool is_finished(const Slot& slot);
// Down, or on its way back from there. A node that comes up for the first time is not lost.
bool is_lost(const Node& node);

}  // namespace hpctl::core
