// SPDX-License-Identifier: Apache-2.0
// When two worlds are the same. Numbers that only count (events, actions, moves) differ between
// interleavings that lead to the same place, so actions are named by their target, times by their
// distance from now, and what is only told to people is left out. All other fields of a row count,
// those too that nobody has thought of here: rows are taken as the codec writes them.
#include <functional>
#include <string_view>

#include "common/base/rng.h"
#include "controller/core/codec.h"
#include "tests/exhaustive/world.h"

namespace hpctl::exhaustive {

namespace {

class Digest {
 public:
  void add(uint64_t value) { value_ = mix64(value_ * 0x9e3779b97f4a7c15ULL + value + 1); }
  void add(std::string_view text) { add(std::hash<std::string_view>{}(text)); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

uint64_t digest_of(std::string_view text) {
  Digest digest;
  digest.add(text);
  return digest.value();
}

// Before now; 0 stays "never".
void make_relative(int64_t& at_ms, int64_t now_ms) {
  if (at_ms != 0) at_ms -= now_ms + 1;
}

uint64_t digest_of(core::Job job, int64_t now_ms) {
  job.spec = {};  // the same in all worlds
  job.backend = {};
  job.limits = {};
  job.reason.clear();
  job.fault = job.fault.empty() ? "" : "a fault";
  job.fault_seq = job.plan_seq = {};
  for (core::Fault& fault : job.recent_faults) {
    fault.cause.clear();
    fault.seq = {};
    fault.step = 0;
  }
  // The account of lost time.
  job.loss_part = {};
  job.spent = {};
  job.told_waits = {};
  job.lost_ms = job.part_since_ms = job.stepped_ms = job.running_since_ms = 0;
  job.submitted_wall_ms = job.ended_wall_ms = 0;
  for (int64_t* at_ms : {&job.not_before_ms, &job.stage_since_ms, &job.deadline_ms,
                         &job.recovering_since_ms, &job.suspended_since_ms}) {
    make_relative(*at_ms, now_ms);
  }
  for (int64_t& at_ms : job.restart_times_ms) make_relative(at_ms, now_ms);
  return digest_of(core::encode(job));
}

uint64_t digest_of(core::Node node, int64_t now_ms) {
  node.reason.clear();
  node.launch_seq = node.deadline_seq = {};
  make_relative(node.launched_ms, now_ms);
  make_relative(node.deadline_ms, now_ms);
  for (int64_t& at_ms : node.fault_times_ms) make_relative(at_ms, now_ms);
  return digest_of(core::encode(node));
}

uint64_t digest_of(core::Action action) {
  action.id = {};
  action.reason.clear();
  if (auto* record = std::get_if<core::RecordGeneration>(&action.body)) record->reason.clear();
  return digest_of(core::encode(action));
}

// Which action an event answers; the event forgets it.
ActionId take_action(core::EventBody& body) {
  return std::visit(
      [](auto& e) -> ActionId {
        if constexpr (requires { e.action; }) return std::exchange(e.action, ActionId{});
        return {};
      },
      body);
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

void add(Digest& digest, Names& names, core::EventBody body) {
  digest.add(names.of(take_action(body)));
  digest.add(core::encode(core::Event{{}, 0, 0, std::move(body)}));
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

void add(Digest& digest, Names& names, const Place& place) {
  digest.add(place.life);
  digest.add((place.holder_alive ? 1U : 0U) + (place.bound ? 2U : 0U) + (place.end_seen ? 4U : 0U));
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
  digest.add(place.launch ? names.of(*place.launch) : 0);
  // Only whether it is this one that is under way matters.
  digest.add(place.launch && *place.launch == place.launched_by ? 1 : 0);
  digest.add(place.reports.size());
  for (const core::EventBody& body : place.reports) add(digest, names, body);
  digest.add(place.up.size());
  for (const Message& message : place.up) {
    digest.add(message.is_report ? 1 : 0);
    add(digest, names, message.body);
  }
  digest.add(place.late.size());
  for (const core::EventBody& body : place.late) add(digest, names, body);
  digest.add(place.down.size());
  for (const core::Action& action : place.down) {
    digest.add(names.of(action.id));
    digest.add(digest_of(action));
  }
}

void add(Digest& digest, const Run& run) {
  digest.add(run.start_step);
  digest.add(run.checkpoint);
  digest.add((run.from_memory ? 1U : 0U) + (run.is_formed ? 2U : 0U) + (run.is_broken ? 4U : 0U));
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

void add(Digest& digest, Names& names, const DirectoryOrder& order) {
  digest.add(names.of(order.action.id));
  digest.add(digest_of(order.action));
}

// Records, whose they are, and checkpoints; which of these a search has not seen yet.
void add(Digest& digest, const sim::Directory& directory, const std::vector<uint64_t>& searches) {
  digest.add(directory.records().size());
  for (const GenerationRecord& record : directory.records()) digest.add(to_json_text(record));
  digest.add(directory.checkpoints().size());
  for (const auto& [ref, stored] : directory.checkpoints()) {
    digest.add(ref.step);
    digest.add(ref.generation);
    for (const uint64_t searched : searches) {
      digest.add(stored.committed_ms > static_cast<int64_t>(searched) ? 1 : 0);
    }
  }
}

}  // namespace

void World::remember_rows(const core::Dirty& dirty) {
  for (const JobId id : dirty.jobs) {
    job_digests_[id] = digest_of(state_.jobs.at(id), state_.now_ms);
  }
  for (const core::NodeKey& key : dirty.nodes) {
    node_digests_[key] = digest_of(state_.nodes.at(key), state_.now_ms);
  }
  for (const core::SlotKey& key : dirty.slots) {
    slot_digests_[key] = digest_of(core::encode(state_.slots.at(key)));
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
  std::vector<uint64_t> searches = {searched_};
  digest.add(orders_.size());
  for (const DirectoryOrder& order : orders_) {
    add(digest, names, order);
    searches.push_back(order.searched);
  }
  digest.add(answers_.size());
  for (const core::EventBody& body : answers_) add(digest, names, body);
  add(digest, directory_, searches);
  digest.add(trained_);
  digest.add(static_cast<uint64_t>(faults_left_));
  return digest.value();
}

}  // namespace hpctl::exhaustive
