// SPDX-License-Identifier: Apache-2.0
// The two places of the checkpoints: what they suffer, and what the mirror carries out.
#include <algorithm>
#include <utility>

#include "tests/exhaustive/world.h"

namespace hpctl::exhaustive {

// A search interrupts the copy that is under way; what was copied until then is no checkpoint.
void World::order_search(const core::Action& action, bool in_mirror) {
  std::erase_if(mirror_orders_, [](const Order& order) {
    return std::holds_alternative<core::MirrorCheckpoint>(order.action.body);
  });
  (in_mirror ? mirror_orders_ : orders_).emplace_back(action, search_);
}

void World::fail(const Order& order) {
  answers_.emplace_back(
      core::ActionFailed{order.action.id, JobId{1}, "", sim::kStorageError, false});
}

// Nothing is done, so nothing may follow from it: a generation that is recorded after it gives up
// what was there before it.
void World::fail_order() {
  const Order order = orders_.front();
  orders_.pop_front();
  if (std::holds_alternative<core::FindCheckpoint>(order.action.body)) {
    search_ = {static_cast<int64_t>(clock_), checkers_.told(JobId{1}), false};
    if (scope_->mutant == sim::Mutant::kErrorIsAbsence) {
      answers_.emplace_back(core::CheckpointChosen{
          order.action.id, JobId{1}, "", 0, {directory_.newest_generation()}});
      return;
    }
  }
  fail(order);
}

std::string World::confirm(const std::string& checkpoint) const {
  return checkpoint.starts_with('/') ? mirror_.confirm(checkpoint) : directory_.confirm(checkpoint);
}

// A second reader's word on a claim of damage.
std::string World::answer_claim(const std::string& checkpoint) const {
  const bool believes = scope_->mutant == sim::Mutant::kOneReader && !checkpoint.empty();
  return believes ? "a worker says so" : confirm(checkpoint);
}

bool World::is_anothers(const sim::Directory& place) const {
  return place.is_taken() && scope_->mutant != sim::Mutant::kAnyOwner;
}

sim::Found World::find_in_first_place(const core::FindCheckpoint& search,
                                      const std::vector<std::string>& exclude) const {
  if (scope_->mutant == sim::Mutant::kWithdrawnCounts) return directory_.find(exclude);
  sim::Found found = directory_.find(search, exclude);
  if (scope_->mutant != sim::Mutant::kAnyHistory) return found;
  for (const auto& [ref, stored] : directory_.checkpoints()) {  // ascending
    const bool is_excluded = std::find(exclude.begin(), exclude.end(), ref.name()) != exclude.end();
    if (is_excluded || ref.step < found.step) continue;
    found.name = ref.name();
    found.step = ref.step;
  }
  return found;
}

// nullptr = it is not there, or its place is away.
const sim::StoredCheckpoint* World::stored_at(const std::string& checkpoint) const {
  if (checkpoint.starts_with('/')) return mirror_.checkpoint(checkpoint);
  const auto ref = parse_checkpoint_name(checkpoint);
  return ref && !is_away_ ? directory_.checkpoint(*ref) : nullptr;
}

const GenerationRecord* World::record_of(uint64_t generation) const {
  for (const sim::Directory* place : {&directory_, &mirror_.directory(), &emptied_}) {
    if (const GenerationRecord* record = place->record(generation)) return record;
  }
  return nullptr;
}

// With the records of generations that began while the first place was away.
sim::Directory World::whole_directory() const {
  sim::Directory whole = directory_;
  const sim::Directory& copies = mirror_.directory();
  if (copies.newest_generation() > whole.newest_generation()) whole.copy_records(copies);
  return whole;
}

// False: the first place is not the job's without them, and the mirror lacks them, too.
bool World::give_back_records(Generation newest) {
  if (!mirror_.exists() || directory_.newest_generation() >= newest.value) return true;
  return mirror_.give_back(directory_, newest.value);
}

void World::use_mirror() {
  const Order order = mirror_orders_.front();
  mirror_orders_.pop_front();
  if (std::holds_alternative<core::FindCheckpoint>(order.action.body)) {
    find_in_mirror(order);
  } else if (std::holds_alternative<core::RecordGeneration>(order.action.body)) {
    record(order, false);
  } else {
    copy(order);
  }
}

void World::copy(const Order& order) {
  const auto& wanted = std::get<core::MirrorCheckpoint>(order.action.body);
  if (is_away_) return fail(order);
  const sim::Mirror before = mirror_;
  core::MirrorCheckpoint carried_out = wanted;
  if (scope_->mutant == sim::Mutant::kMirrorUnverified) carried_out.asks = false;
  const sim::Copied done =
      mirror_.copy(directory_, carried_out, {scope_->keep, false, static_cast<int64_t>(clock_)});
  checkers_.mirror_updated(wanted, scope_->keep, directory_, before, mirror_);
  if (!done.failure.empty()) return fail(order);
  answers_.emplace_back(core::CheckpointMirrored{order.action.id, JobId{1}, done.name, done.step,
                                                 done.is_new ? 1U : 0U, done.deleted, done.problem,
                                                 done.verified, done.to_verify});
}

void World::find_in_mirror(const Order& order) {
  const auto& search = std::get<core::FindCheckpoint>(order.action.body);
  if (search.first.away) search_.told = checkers_.told(JobId{1});
  if (is_away_ && !search.first.away) {  // whose records it goes by
    search_.mirror_failed = true;
    return fail(order);
  }
  const std::string& claimed = search.claim.checkpoint;
  const std::string confirmed = mirror_.confirm(claimed);
  core::FindCheckpoint wanted = search;
  if (!confirmed.empty()) wanted.exclude.push_back(claimed);
  if (!confirmed.empty()) checkers_.damage_confirmed(JobId{1}, claimed);
  const sim::Found found = mirror_.find(directory_, wanted);
  core::CheckpointChosen chosen{order.action.id,           search.job, found.name, found.step,
                                {found.newest_generation}, confirmed};
  chosen.withdrawn = found.withdrawn;
  answers_.emplace_back(std::move(chosen));
}

void World::fail_order_of_mirror() {
  const Order order = mirror_orders_.front();
  mirror_orders_.pop_front();
  if (std::holds_alternative<core::FindCheckpoint>(order.action.body)) {
    search_.mirror_failed = true;
  } else if (const auto* wanted = std::get_if<core::MirrorCheckpoint>(&order.action.body)) {
    const sim::CopyRun cut{scope_->keep, true, static_cast<int64_t>(clock_)};
    const sim::Mirror before = mirror_;
    if (!is_away_) mirror_.copy(directory_, *wanted, cut);
    checkers_.mirror_updated(*wanted, scope_->keep, directory_, before, mirror_);
  }
  fail(order);
}

void World::lose(const CheckpointRef& ref) {
  checkers_.checkpoint_lost(JobId{1}, ref.name());
  directory_.remove(ref);
}

void World::lose_all(bool with_records) {
  for (const auto& [ref, checkpoint] : directory_.checkpoints()) {
    checkers_.checkpoint_lost(JobId{1}, ref.name());
  }
  directory_.remove_checkpoints();
  if (!with_records) return;
  emptied_ = std::exchange(directory_, sim::Directory());
  checkers_.first_place_emptied(JobId{1}, mirror_);
  was_away_ = true;
}

void World::bring_back() {
  is_away_ = false;
  if (is_emptied()) directory_.copy_records(emptied_);
}

// A job whose last checkpoint is there has all that it wants.
bool World::can_lose() const {
  const auto& checkpoints = directory_.checkpoints();
  return !is_away_ && !checkpoints.empty() && !directory_.is_taken() &&
         checkpoints.rbegin()->first.step < scope_->steps;
}

}  // namespace hpctl::exhaustive
