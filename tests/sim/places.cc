// SPDX-License-Identifier: Apache-2.0
// The two places of a job's checkpoints: what the controller orders there, and what they suffer.
#include <algorithm>
#include <array>
#include <iterator>

#include "tests/sim/cluster.h"

namespace hpctl::sim {

namespace {

constexpr uint64_t kLongestCopyMs = 2'000;

bool is_emptied(const Places& places) {
  return places.first.records().empty() && !places.emptied.records().empty();
}

}  // namespace

using core::Action;

// A worker does not fill a directory that has lost its owner and its records.
bool Cluster::can_save(JobId job) const {
  const Places& places = places_.at(job);
  return !is_away(places.first_away_until_ms) && !is_emptied(places);
}

// A person brings back what is away, and the records of a directory that was emptied.
void Cluster::mend(Places& places) {
  places.first_away_until_ms = std::min(places.first_away_until_ms, agenda_.now());
  places.mirror_away_until_ms = std::min(places.mirror_away_until_ms, agenda_.now());
  const bool lacks_some = places.first.newest_generation() < places.emptied.newest_generation();
  if (lacks_some) places.first.copy_records(places.emptied);
}

const StoredCheckpoint* Cluster::stored_in(const Places& places, const std::string& name) {
  const auto ref = parse_checkpoint_name(name);
  return ref ? places.first.checkpoint(*ref) : places.mirror.checkpoint(name);
}

// Of the place where the checkpoint is.
bool Cluster::is_place_away(JobId job, const std::string& checkpoint) const {
  const Places& places = places_.at(job);
  const bool in_mirror = checkpoint.starts_with('/');
  return is_away(in_mirror ? places.mirror_away_until_ms : places.first_away_until_ms);
}

// A directory without the job's records may be another one.
bool Cluster::is_out_of_reach(JobId job, const std::string& checkpoint) const {
  return checkpoint.starts_with('/') ? is_place_away(job, checkpoint) : !can_save(job);
}

Directory Cluster::whole_directory(JobId job) const {
  const Places& places = places_.at(job);
  Directory whole = places.first;
  const Directory& copies = places.mirror.directory();
  if (copies.newest_generation() > whole.newest_generation()) whole.copy_records(copies);
  return whole;
}

const GenerationRecord* Cluster::record_of(JobId job, uint64_t generation) const {
  const Places& places = places_.at(job);
  for (const Directory* place : {&places.first, &places.mirror.directory(), &places.emptied}) {
    if (const GenerationRecord* record = place->record(generation)) return record;
  }
  return nullptr;
}

const GenerationRecord* Cluster::newest_record(JobId job) const {
  const Places& places = places_.at(job);
  const uint64_t newest =
      std::max({places.first.newest_generation(), places.mirror.directory().newest_generation(),
                places.emptied.newest_generation()});
  return newest == 0 ? nullptr : record_of(job, newest);
}

// What a second reader says of a claim of damage.
std::string Cluster::answer_claim(const std::string& claimed, const std::string& damage) const {
  const bool believes = swarm_.mutant == Mutant::kOneReader && !claimed.empty();
  return believes ? "a worker says so" : damage;
}

bool Cluster::is_anothers(const Directory& place) const {
  return place.is_taken() && swarm_.mutant != Mutant::kAnyOwner;
}

// Storage does not answer, or another job owns the directory: the core has been told.
bool Cluster::is_refused(ActionId order, JobId job) {
  const Places& places = places_[job];
  const bool is_taken = is_anothers(places.first);
  const bool is_down = is_away(places.first_away_until_ms) || strikes(swarm_.directory_fails);
  if (!is_taken && !is_down) return false;
  controller_.post(
      core::ActionFailed{order, job, "", is_taken ? kTakenBy : kStorageError, is_taken});
  return true;
}

// As in task_lanes.h: the orders to one place are carried out one after the other, withdrawn or
// not, and those to the other place side by side with them. They end with the controller.
void Cluster::in_lane(JobId job, bool in_mirror, std::function<void()> task) {
  Places& places = places_[job];
  int64_t& clear_ms = in_mirror ? places.mirror_clear_ms : places.first_clear_ms;
  clear_ms = std::max(clear_ms, agenda_.now() + delay());
  const uint64_t incarnation = controller_.incarnation();
  agenda_.after(clear_ms - agenda_.now(), [this, incarnation, task = std::move(task)] {
    if (incarnation == controller_.incarnation()) task();
  });
}

void Cluster::find_checkpoint(const Action& action, const core::FindCheckpoint& order) {
  ++places_[order.job].searches;
  in_lane(order.job, order.in_mirror, [this, action, order] {
    if (order.in_mirror) return find_in_mirror(action, order);
    find_in_first_place(action, order);
  });
}

void Cluster::find_in_first_place(const Action& action, const core::FindCheckpoint& order) {
  Places& places = places_[order.job];
  if (strikes(swarm_.takes_directory) && !places.first.is_taken()) {
    places.first.take(1, agenda_.now());
  }
  if (swarm_.mutant == Mutant::kErrorIsAbsence && strikes(swarm_.directory_fails)) {
    places.search = {agenda_.now(), checkers_.told(order.job), false};
    controller_.post(
        core::CheckpointChosen{action.id, order.job, "", 0, {places.first.newest_generation()}});
    return;
  }
  if (is_refused(action.id, order.job)) return;
  const bool is_mirror_away = is_away(places.mirror_away_until_ms);
  const bool lacks_records = places.first.newest_generation() < order.newest.value;
  const bool asks_mirror =
      order.claim.checkpoint.starts_with('/') || (places.mirror.exists() && lacks_records);
  const bool has_lineage = !places.mirror.exists() || !lacks_records ||
                           places.mirror.give_back(places.first, order.newest.value);
  if ((asks_mirror && is_mirror_away) || !has_lineage) {
    controller_.post(core::ActionFailed{action.id, order.job, "", kStorageError, false});
    return;
  }
  const std::string& claimed = order.claim.checkpoint;
  const std::string damage =
      claimed.starts_with('/') ? places.mirror.confirm(claimed) : places.first.confirm(claimed);
  const std::string confirmed = answer_claim(claimed, damage);
  std::vector<std::string> exclude = order.exclude;
  if (!confirmed.empty()) exclude.push_back(claimed);
  if (!damage.empty()) checkers_.damage_confirmed(order.job, claimed);
  const Found found = places.first.find(order, exclude);
  places.search = {agenda_.now(), checkers_.told(order.job), false};
  checkers_.first_place_searched(order.job, found.step);
  core::CheckpointChosen chosen{
      action.id, order.job, found.name, found.step, {found.newest_generation}, confirmed};
  const uint64_t committed_step = controller_.state().jobs.at(order.job).committed_step;
  chosen.lost = places.first.find_lost(committed_step, found, exclude);
  chosen.withdrawn = found.withdrawn;
  controller_.post(std::move(chosen));
}

void Cluster::find_in_mirror(const Action& action, const core::FindCheckpoint& order) {
  Places& places = places_[order.job];
  Search& search = places.search;
  if (order.first.away) search = {agenda_.now(), checkers_.told(order.job), false};
  const bool needs_first = !order.first.away && is_away(places.first_away_until_ms);
  search.mirror_failed =
      needs_first || is_away(places.mirror_away_until_ms) || strikes(swarm_.directory_fails);
  if (search.mirror_failed) {
    controller_.post(core::ActionFailed{action.id, order.job, "", kStorageError, false});
    return;
  }
  const std::string& claimed = order.claim.checkpoint;
  const std::string confirmed = places.mirror.confirm(claimed);
  core::FindCheckpoint wanted = order;
  if (!confirmed.empty()) wanted.exclude.push_back(claimed);
  if (!confirmed.empty()) checkers_.damage_confirmed(order.job, claimed);
  const Found found = places.mirror.find(places.first, wanted);
  core::CheckpointChosen chosen{
      action.id, order.job, found.name, found.step, {found.newest_generation}, confirmed};
  chosen.withdrawn = found.withdrawn;
  controller_.post(std::move(chosen));
}

// The next search interrupts it, as in the lane of a directory.
void Cluster::prune_checkpoints(const Action& action, const core::PruneCheckpoints& order) {
  in_lane(order.job, false, [this, action, order, searches = places_[order.job].searches] {
    if (searches != places_[order.job].searches || is_refused(action.id, order.job)) return;
    core::CheckpointsPruned done{action.id, order.job};
    const Directory before = directory(order.job);
    const auto keep = static_cast<size_t>(plans_.at(order.job).spec.checkpoint.keep);
    const bool is_unverified = swarm_.mutant == Mutant::kUnverified;
    const Pruned pruned =
        directory(order.job).prune(is_unverified ? unverified(order, before) : order, keep);
    checkers_.checkpoints_pruned(order.job, order, keep, before, directory(order.job));
    done.verified = pruned.verified;
    done.deleted = pruned.deleted;
    done.problem = pruned.problem;
    done.to_verify = pruned.to_verify;
    controller_.post(std::move(done));
  });
}

// In the mirror's own lane. The next search interrupts it: it has not begun, or it leaves an
// unfinished copy.
void Cluster::mirror_checkpoint(const Action& action, const core::MirrorCheckpoint& order) {
  const auto takes_ms = static_cast<int64_t>(1 + rng_.below(kLongestCopyMs));
  agenda_.after(takes_ms, [this, id = action.id, order, incarnation = controller_.incarnation(),
                           searches = places_[order.job].searches] {
    const bool is_wanted =
        incarnation == controller_.incarnation() && searches == places_[order.job].searches;
    if (is_wanted || rng_.chance(0.5)) copy_to_mirror(id, order, is_wanted);
  });
}

void Cluster::copy_to_mirror(ActionId id, const core::MirrorCheckpoint& order, bool is_wanted) {
  Places& places = places_[order.job];
  Copied done;
  if (is_away(places.first_away_until_ms) || is_away(places.mirror_away_until_ms) ||
      strikes(swarm_.directory_fails)) {
    done.failure = kStorageError;
  } else {
    const Mirror before = places.mirror;
    const auto keep = static_cast<size_t>(plans_.at(order.job).spec.checkpoint.keep);
    core::MirrorCheckpoint carried_out = order;
    if (swarm_.mutant == Mutant::kMirrorUnverified) carried_out.asks = false;
    done = places.mirror.copy(places.first, carried_out, {keep, !is_wanted, agenda_.now()});
    checkers_.mirror_updated(order, keep, places.first, before, places.mirror);
  }
  if (!is_wanted) return;
  if (!done.failure.empty()) {
    controller_.post(core::ActionFailed{id, order.job, "", done.failure, false});
    return;
  }
  if (done.is_new && strikes(swarm_.damaged_copy)) {
    places.mirror.directory().damage(*parse_checkpoint_name(done.name));
  }
  controller_.post(core::CheckpointMirrored{id, order.job, done.name, done.step,
                                            done.is_new ? 1U : 0U, done.deleted, done.problem,
                                            done.verified, done.to_verify});
}

GenerationRecord Cluster::make_record(ActionId id, const core::RecordGeneration& order) {
  GenerationRecord record;
  record.job = order.job.value;
  record.order = to_string(id);
  for (const Generation withdrawn : order.withdrawn) record.withdrawn.push_back(withdrawn.value);
  record.generation = order.generation.value;
  record.parent = order.parent.value;
  record.start_step = order.start_step;
  record.checkpoint = order.checkpoint;
  record.from_memory = order.memory_of != Generation{};
  record.committed = order.committed;
  record.damaged = order.damaged;
  record.restarts_used = order.restarts_used;
  record.created_wall_ms = agenda_.now();
  record.quarantined = order.quarantined;
  for (const auto& [rank, name] : order.members) {
    record.members.push_back({rank.value, name, instance_id(nodes_.at({order.job, name}))});
  }
  return record;
}

void Cluster::record_generation(const Action& action, const core::RecordGeneration& order) {
  // The order may be withdrawn for another search and be carried out all the same.
  const Search search = places_[order.job].search;
  in_lane(order.job, order.in_mirror, [this, action, order, search] {
    Places& places = places_[order.job];
    Directory& place = order.in_mirror ? places.mirror.directory() : places.first;
    const bool is_down = order.in_mirror
                             ? is_away(places.mirror_away_until_ms)
                             : is_away(places.first_away_until_ms) || is_emptied(places);
    if (is_anothers(place) || is_down) {
      controller_.post(core::ActionFailed{action.id, order.job, "",
                                          is_down ? kStorageError : kTakenBy, !is_down});
      return;
    }
    const GenerationRecord record = make_record(action.id, order);
    if (strikes(swarm_.racing_controller)) {
      GenerationRecord rivals = record;
      rivals.order = "another controller's";
      place.create(rivals, "another controller");
    }
    const Directory first = places.first;
    const Mirror mirror = places.mirror;
    const Creation creation = place.create(record, to_string(action.id));
    if (creation == Creation::kTaken) {
      controller_.post(core::GenerationTaken{action.id, order.job, order.generation,
                                             place.record(record.generation)->order});
      return;
    }
    if (creation == Creation::kCreated) {
      checkers_.record_created(order.job, record, {first, mirror, order.in_mirror}, search);
    }
    if (strikes(swarm_.directory_fails)) return;  // the answer is lost; the core's deadline helps
    controller_.post(core::GenerationRecorded{action.id, order.job, order.generation});
  });
}

// Of a job that trains; nullptr = there is none.
Places* Cluster::random_places(JobId& job) {
  std::vector<JobId> jobs;
  for (const auto& [id, plan] : plans_) {
    if (!plan.is_command) jobs.push_back(id);
  }
  if (jobs.empty()) return nullptr;
  job = jobs[rng_.below(jobs.size())];
  return &places_[job];
}

// The newest, all, or all and the records. A job whose last checkpoint is there has all that it
// wants.
void Cluster::lose_checkpoints() {
  JobId job;
  Places* places = random_places(job);
  if (places == nullptr || is_away(places->first_away_until_ms)) return;
  Directory& first = places->first;
  const auto& stored = first.checkpoints();
  if (stored.empty() || first.is_taken() || stored.rbegin()->first.step == plans_.at(job).steps) {
    return;
  }
  const uint64_t mode = rng_.below(places->mirror.exists() ? 3 : 2);
  const CheckpointRef newest = stored.rbegin()->first;
  for (const auto& [ref, checkpoint] : stored) {
    if (mode > 0 || ref == newest) checkers_.checkpoint_lost(job, ref.name());
  }
  if (mode == 0) first.remove(newest);
  if (mode > 0) first.remove_checkpoints();
  if (mode == 2) {
    places->emptied = std::exchange(first, Directory());
    checkers_.first_place_emptied(job, places->mirror);
  }
}

void Cluster::take_place_away(int64_t for_ms, bool is_first) {
  JobId job;
  Places* places = random_places(job);
  if (places == nullptr) return;
  (is_first ? places->first_away_until_ms : places->mirror_away_until_ms) = agenda_.now() + for_ms;
}

}  // namespace hpctl::sim
