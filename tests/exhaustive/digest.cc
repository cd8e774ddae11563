// SPDX-License-Identifier: Apache-2.0
// When two worlds are the same. Numbers that only count (events, actions, moves) differ between
// interleavings that lead to the same place, so actions are named by their target, times by their
// distance from now, and what is only told to people is left out. A row is taken apart into all of
// its fields: who adds one must say here, to compile, whether anything depends on it.
#include <algorithm>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "common/base/rng.h"
#include "controller/core/codec.h"
#include "tests/exhaustive/world.h"

namespace hpctl::exhaustive {

namespace {

class Digest {
 public:
  template <typename Number>
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number>
  void add(Number value) {
    value_ = mix64(value_ * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(value) + 1);
  }
  void add(std::string_view text) { add(std::hash<std::string_view>{}(text)); }
  template <typename Tag, typename Rep>
  void add(StrongId<Tag, Rep> id) {
    add(static_cast<uint64_t>(id.value));
  }
  template <typename T>
  void add_all(const T& values) {
    add(values.size());
    for (const auto& value : values) add(value);
  }
  template <typename... T>
  void add_each(const T&... values) {
    (add(values), ...);
  }
  // 0 stays "never".
  void add_time(int64_t at_ms, int64_t now_ms) {
    add(static_cast<uint64_t>(at_ms == 0 ? INT64_MIN : at_ms - now_ms));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

uint64_t digest_of(std::string_view text) {
  Digest digest;
  digest.add(text);
  return digest.value();
}

uint64_t digest_of(const core::Job& job, int64_t now_ms) {
  const auto& [id, spec, owner_uid, submit_key, backend, limits, active_nodes, state, reason,
               generation, directory_generation, stage, loss_part, checkpoint, memory_of, refilled,
               former_parts, start_step, furthest_step, committed_step, damaged, restart_times_ms,
               restarts, progress_at_restart, start_at_restart, restarts_without_progress, fault,
               fault_is_collateral, fault_seq, recent_faults, plan_seq, not_before_ms,
               storage_since_ms, suspended_since_ms, requeue_refusal, scheduler_note, removed,
               cancel_requested, cancel_reason, saves_first, at_limit, without_memory,
               in_host_memory, ending, stage_since_ms, deadline_ms, submitted_wall_ms,
               ended_wall_ms, running_since_ms, recovering_since_ms, regain_step, stepped_ms,
               lost_ms, spent, part_since_ms, told_waits, bad_step, stragglers, pruning,
               storage_waited_ms, storage_errors_directory, storage_errors_worker, claim,
               storage_exits, mirror, withdrawn] = job;
  Digest digest;
  digest.add_each(active_nodes, state, generation, directory_generation, stage, checkpoint,
                  memory_of, former_parts, start_step, furthest_step, committed_step, restarts,
                  progress_at_restart, start_at_restart, restarts_without_progress, fault.empty(),
                  fault_is_collateral, recent_faults.size(), cancel_requested, saves_first,
                  at_limit, without_memory, in_host_memory, ending.reason.empty(), ending.state,
                  ending.awaits_cause, regain_step, pruning.due, pruning.for_room, claim.checkpoint,
                  claim.node, mirror.due, mirror.step, mirror.undone.generation, mirror.undone.step,
                  mirror.ordered.generation, mirror.ordered.in_mirror, mirror.problem.empty());
  digest.add_all(refilled);
  digest.add_all(damaged);
  digest.add_all(claim.asked);
  for (const core::WithdrawnRecord& record : withdrawn) {
    digest.add_each(record.generation, record.is_there);
  }
  for (const core::Verification* verification : {&pruning.verification, &mirror.verification}) {
    const core::DamageClaim& read = verification->claim;
    digest.add_each(read.checkpoint, read.node, verification->verified_by, verification->for_room);
    digest.add_all(read.asked);
  }
  for (const int64_t at_ms : restart_times_ms) digest.add_time(at_ms, now_ms);
  for (const int64_t at_ms : {not_before_ms, storage_since_ms, stage_since_ms, deadline_ms,
                              recovering_since_ms, pruning.recorded_ms}) {
    digest.add_time(at_ms, now_ms);
  }
  return digest.value();
}

uint64_t digest_of(const core::Node& node, int64_t now_ms) {
  const auto& [key, state, instance_id, boot_id, address, holder_pid, agent_pid, connected,
               launches, launched_for, launch_attempts, launched_ms, launch_seq, generation_seen,
               quarantine, fault_times_ms, false_claims, replaced_instance, rebooted_wall_ms,
               recovery_wall_ms, suspect, tells_ready, is_ready, scheduler_note, lemon,
               confirms_damage, beside_controller, taken, former_boot_ids, deadline_ms,
               deadline_seq, reason] = node;
  Digest digest;
  digest.add_each(key.name, state, instance_id, boot_id, holder_pid, agent_pid, connected, launches,
                  launched_for, launch_attempts, generation_seen, quarantine.by, suspect,
                  tells_ready, is_ready, lemon, confirms_damage, beside_controller, taken,
                  false_claims);
  digest.add_all(former_boot_ids);
  for (const int64_t at_ms : fault_times_ms) digest.add_time(at_ms, now_ms);
  for (const int64_t at_ms : {launched_ms, deadline_ms, quarantine.until_wall_ms})
    digest.add_time(at_ms, now_ms);
  return digest.value();
}

void add(Digest& digest, const ArenaSeals& seals) {
  digest.add_each(seals.part, seals.parts);
  for (const Seal& seal : seals.own) digest.add_each(seal.step, seal.digest, seal.generation);
}

uint64_t digest_of(const core::Slot& slot) {
  const auto& [key, node, state, generation, pid, exit_code, signal, unaccounted, seals,
               arena_boot_id] = slot;
  Digest digest;
  digest.add_each(key.rank, node, state, generation, pid, exit_code, signal, unaccounted,
                  arena_boot_id);
  add(digest, seals);
  return digest.value();
}

uint64_t digest_of(core::Action action) {
  action.id = {};
  action.reason.clear();
  if (auto* record = std::get_if<core::RecordGeneration>(&action.body)) record->reason.clear();
  if (auto* search = std::get_if<core::FindCheckpoint>(&action.body)) {
    for (core::WithdrawnRecord& record : search->withdrawn) record.order.clear();
  }
  return digest_of(core::encode(action));
}

// Names actions in the order in which they are met, unless they are open.
class Names {
 public:
  explicit Names(const std::map<ActionId, uint64_t>& open) : open_(open) {}
  uint64_t of(ActionId id) {
    if (id == ActionId{}) return 0;
    if (const auto it = open_.find(id); it != open_.end()) return it->second;
    return met_.emplace(id, met_.size() + 1).first->second;
  }

 private:
  const std::map<ActionId, uint64_t>& open_;
  std::map<ActionId, uint64_t> met_;
};

void add(Digest& digest, Names& names, const Word& word) {
  digest.add(names.of(word.answers));
  digest.add(word.digest);
}

void add(Digest& digest, const sim::History& history) {
  digest.add(history.size());
  for (const sim::Segment& segment : history) {
    digest.add(segment.generation);
    digest.add(segment.from);
    digest.add(segment.to);
  }
}

void add(Digest& digest, const sim::SealedState& sealed) {
  digest.add(sealed.seal.step);
  digest.add(sealed.seal.generation);
  add(digest, sealed.history);
}

void add(Digest& digest, Names& names, const Order& order) {
  digest.add(names.of(order.action.id));
  digest.add(order.digest);
}

void add(Digest& digest, Names& names, const Place& place) {
  digest.add(place.life);
  digest.add((place.holder_alive ? 1U : 0U) + (place.bound ? 2U : 0U) + (place.end_seen ? 4U : 0U) +
             (place.arena_is_told ? 8U : 0U));
  for (const uint64_t number : {place.pids, place.generation_seen, place.stopped_through,
                                place.newest_generation, static_cast<uint64_t>(place.rank)}) {
    digest.add(number);
  }
  digest.add(place.worker ? place.worker->generation : 0);
  digest.add(place.worker ? place.worker->pid : 0);
  digest.add(place.arena.size());
  for (const sim::SealedState& sealed : place.arena) add(digest, sealed);
  digest.add(place.started ? place.started->generation.value : 0);
  digest.add(place.started ? names.of(place.started->action) : 0);
  digest.add(place.stopping ? names.of(place.stopping->action) : 0);
  digest.add(place.launch ? names.of(*place.launch) : 0);
  // Only whether a holder of this launch or a later one is there matters.
  digest.add(place.launch && *place.launch <= place.launched_by);
  digest.add(place.reports.size());
  for (const Word& word : place.reports) add(digest, names, word);
  digest.add(place.up.size());
  for (const Message& message : place.up) {
    digest.add(message.is_report);
    add(digest, names, message.word);
  }
  digest.add(place.late.size());
  for (const Word& word : place.late) add(digest, names, word);
  digest.add(place.down.size());
  for (const Order& order : place.down) add(digest, names, order);
}

void add(Digest& digest, const Run& run) {
  digest.add(run.start_step);
  digest.add(run.checkpoint);
  digest.add((run.from_memory ? 1U : 0U) + (run.is_formed ? 2U : 0U) + (run.is_broken ? 4U : 0U) +
             (run.is_missing ? 8U : 0U) + (run.is_last ? 16U : 0U) + (run.is_stopping ? 32U : 0U));
  digest.add(run.homes.size());
  for (const auto& [rank, node] : run.homes) {
    digest.add(static_cast<uint64_t>(rank));
    digest.add(static_cast<uint64_t>(node));
    digest.add(run.steps.at(rank));
    digest.add((run.gone.contains(rank) ? 1U : 0U) + (run.refilled.contains(rank) ? 2U : 0U));
  }
  add(digest, run.begun_with);
  digest.add(run.saving.size());
  for (const uint64_t step : run.saving) digest.add(step);
}

// Records, whose they are, and checkpoints; which of these a search has not seen yet.
void add(Digest& digest, const sim::Directory& directory,
         const std::vector<sim::Search>& searches) {
  digest.add(directory.records().size());
  for (const GenerationRecord& record : directory.records()) {
    digest.add_each(record.generation, record.parent, record.start_step, record.checkpoint,
                    record.from_memory, record.committed);
    digest.add_all(record.damaged);
    for (const GenerationMember& member : record.members) {
      digest.add_each(member.rank, member.node);
    }
  }
  digest.add(directory.is_taken());
  digest.add(directory.checkpoints().size());
  for (const auto& [ref, stored] : directory.checkpoints()) {
    digest.add(ref.step);
    digest.add(ref.generation);
    digest.add(stored.damaged);
    for (const sim::Search& search : searches) {
      digest.add(stored.committed_ms > search.at_ms ? 1 : 0);
    }
  }
}

void add(Digest& digest, const std::set<std::pair<JobId, std::string>>& names) {
  digest.add(names.size());
  for (const auto& [job, name] : names) digest.add(name);
}

}  // namespace

Word::Word(core::EventBody said) : body(std::move(said)) {
  core::Event event{{}, 0, 0, body};
  answers = std::visit(
      [](auto& e) -> ActionId {
        if constexpr (requires { e.action; }) return std::exchange(e.action, ActionId{});
        return {};
      },
      event.body);
  if (auto* chosen = std::get_if<core::CheckpointChosen>(&event.body)) {
    for (core::WithdrawnRecord& record : chosen->withdrawn) record.order.clear();
  }
  if (auto* taken = std::get_if<core::GenerationTaken>(&event.body)) taken->order.clear();
  digest = digest_of(core::encode(event));
}

Order::Order(core::Action ordered, sim::Search searched)
    : action(std::move(ordered)), search(searched), digest(digest_of(action)) {}

// Names of actions differ between interleavings; whether the job's row has this one matters.
bool World::is_withdrawn(const std::string& order) const {
  const auto& withdrawn = job().withdrawn;
  return std::any_of(withdrawn.begin(), withdrawn.end(),
                     [&](const core::WithdrawnRecord& record) { return record.order == order; });
}

std::string World::find_forgotten() const {
  World stored = *this;
  stored.state_ = store_.committed();
  core::rebuild_index(stored.state_);
  stored.remember_all_rows();
  const bool is_same =
      stored.job_digests_ == job_digests_ && stored.node_digests_ == node_digests_ &&
      stored.slot_digests_ == slot_digests_ && stored.action_digests_ == action_digests_;
  if (!is_same) return store_.difference(state_);
  return stored.state_.index == state_.index ? "" : "the index differs from one of the rows";
}

void World::remember_rows(const core::Dirty& dirty) {
  for (const JobId id : dirty.jobs) {
    job_digests_[id] = digest_of(state_.jobs.at(id), state_.now_ms);
  }
  for (const core::NodeKey& key : dirty.nodes) {
    node_digests_[key] = digest_of(state_.nodes.at(key), state_.now_ms);
  }
  for (const core::SlotKey& key : dirty.slots) {
    slot_digests_[key] = digest_of(state_.slots.at(key));
  }
  for (const ActionId id : dirty.outbox) {
    const auto it = state_.outbox.find(id);
    if (it == state_.outbox.end()) {
      action_digests_.erase(id);
    } else {
      action_digests_[id] = digest_of(it->second);
    }
  }
}

void World::remember_all_rows() {
  core::Dirty all;
  for (const auto& [id, row] : state_.jobs) all.jobs.insert(id);
  for (const auto& [key, row] : state_.nodes) all.nodes.insert(key);
  for (const auto& [key, row] : state_.slots) all.slots.insert(key);
  for (const auto& [id, row] : state_.outbox) all.outbox.insert(id);
  action_digests_.clear();
  remember_rows(all);
}

uint64_t World::digest() const {
  Digest digest;
  for (const auto& [id, value] : job_digests_) digest.add(value);
  for (const auto& [key, value] : node_digests_) digest.add(value);
  for (const auto& [key, value] : slot_digests_) digest.add(value);
  uint64_t actions = 0;  // in any order
  for (const auto& [id, value] : action_digests_) actions += mix64(value);
  digest.add(actions);
  Names names(action_digests_);
  for (const Place& place : places_) add(digest, names, place);
  digest.add(runs_.size());
  for (const auto& [generation, run] : runs_) {
    digest.add(generation);
    add(digest, run);
  }
  std::vector<sim::Search> searches = {search_};
  for (const auto* orders : {&orders_, &mirror_orders_}) {
    digest.add(orders->size());
    for (const Order& order : *orders) {
      add(digest, names, order);
      digest.add(is_withdrawn(to_string(order.action.id)));
      searches.push_back(order.search);
    }
  }
  digest.add(answers_.size());
  for (const Word& word : answers_) add(digest, names, word);
  for (const sim::Directory* place : {&directory_, &mirror_.directory(), &emptied_}) {
    add(digest, *place, searches);
    for (const GenerationRecord& record : place->records()) digest.add(is_withdrawn(record.order));
  }
  for (const CheckpointRef& ref : mirror_.unfinished()) digest.add_each(ref.step, ref.generation);
  for (const sim::Search& search : searches) digest.add_each(search.told, search.mirror_failed);
  digest.add_each(is_away_, was_away_, checkers_.told(JobId{1}), checkers_.mirrored(JobId{1}));
  digest.add(trained_);
  digest.add(static_cast<uint64_t>(faults_left_));
  digest.add_each(only_storage_failed_, is_hopeless_, is_cancelled_, may_lose_steps_, completed_,
                  last_generation_);
  if (has_ended()) digest.add(job().reason);  // which is judged
  add(digest, checkers_.claimed());
  add(digest, checkers_.proven());
  add(digest, checkers_.verified());
  add(digest, checkers_.lost());
  return digest.value();
}

}  // namespace hpctl::exhaustive
