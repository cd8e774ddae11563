// SPDX-License-Identifier: Apache-2.0
// Checkers of the two places of a job's checkpoints: what the controller was told, what a person
// deleted, and what the mirror has.
#include <algorithm>
#include <variant>

#include "tests/sim/checkers.h"

namespace hpctl::sim {

namespace {

uint64_t value_of(const std::map<JobId, uint64_t>& values, JobId job) {
  const auto it = values.find(job);
  return it == values.end() ? 0 : it->second;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A copy is not damaged because the checkpoint in the first place is.
std::vector<GenerationRecord> chain_for_copies(const Directory& place,
                                               const GenerationRecord& next) {
  std::vector<GenerationRecord> chain = chain_before(place, next);
  for (GenerationRecord& record : chain) record.damaged.clear();
  return chain;
}

}  // namespace

uint64_t Checkers::told(JobId job) const { return value_of(told_, job); }
uint64_t Checkers::mirrored(JobId job) const { return value_of(mirrored_, job); }

void Checkers::bad_step_met(const core::BadStepFound& e) {
  bad_steps_met_.insert(key_of(e));
  if (e.outcome != BadStepOutcome::kRolledBack) return;
  const auto [it, is_new] = resumed_.emplace(std::pair(e.job, e.generation.value), e.resumed_step);
  it->second = std::min(it->second, e.resumed_step);
}

void Checkers::heard(const core::EventBody& event) {
  if (const auto* saved = std::get_if<core::CheckpointCommitted>(&event)) {
    told_[saved->job] = std::max(told(saved->job), saved->step);
  } else if (const auto* copied = std::get_if<core::CheckpointMirrored>(&event)) {
    const auto ref = parse_checkpoint_name(copied->checkpoint);
    if (!ref) return;
    const auto undone = undone_.find({copied->job, ref->generation});
    const uint64_t step =
        undone == undone_.end() ? copied->step : std::min(copied->step, undone->second);
    mirrored_[copied->job] = step;
    told_[copied->job] = std::max(told(copied->job), step);
  } else if (const auto* bad = std::get_if<core::BadStepFound>(&event)) {
    if (bad->outcome != BadStepOutcome::kRolledBack) return;
    const auto [it, is_new] =
        undone_.emplace(std::pair(bad->job, bad->generation.value), bad->resumed_step);
    it->second = std::min(it->second, bad->resumed_step);
    mirrored_[bad->job] = std::min(mirrored(bad->job), bad->resumed_step);
    told_[bad->job] = std::min(told(bad->job), bad->resumed_step);
  } else if (const auto* recorded = std::get_if<core::GenerationRecorded>(&event)) {
    const Start& start = starts_[{recorded->job, recorded->generation.value}];
    mirrored_[recorded->job] = std::min(mirrored(recorded->job), start.step);
    if (start.from_memory && start.in_mirror) return;  // the first place has what it had
    told_[recorded->job] =
        start.from_memory ? std::max(start.on_disk, mirrored(recorded->job)) : start.step;
  }
}

bool Checkers::may_be_undone(JobId job, const CheckpointRef& ref) const {
  const auto resumed = resumed_.find({job, ref.generation});
  return resumed != resumed_.end() && ref.step > resumed->second;
}

void Checkers::first_place_searched(JobId job, uint64_t found) {
  told_[job] = std::max(mirrored(job), std::min(told(job), found));
}

void Checkers::first_place_emptied(JobId job, const Mirror& mirror) {
  uint64_t used = std::max(mirror.directory().newest_generation(), rows_[job].first);
  for (const auto& [node, generation] : newest_on_node_) {
    if (node.job == job) used = std::max(used, generation);
  }
  uint64_t& newest = newest_recorded_[job];
  newest = std::min(newest, used);
}

void Checkers::check_start_in_mirror(const GenerationRecord& record, const PlacesBefore& before,
                                     const std::string& who) {
  const Directory& place = before.in_mirror ? before.mirror.directory() : before.first;
  const CheckpointRef start = *before.mirror.ref_of(record.checkpoint);
  if (before.mirror.checkpoint(record.checkpoint) == nullptr) {
    fail("starts from a copy that is not complete: " + who);
  }
  const bool counts = start.step == record.start_step &&
                      valid_by_lineage(start, chain_for_copies(place, record)) &&
                      !contains(record.damaged, record.checkpoint);
  if (!counts) fail("starts from a copy that does not count: " + who);
}

// Of the mirror, and of a first place that is away. What the controller was told must not be given
// up while it may still be somewhere.
void Checkers::check_steps_given_up(JobId job, const GenerationRecord& record,
                                    const PlacesBefore& before, const Search& search,
                                    const std::string& who) {
  if (!before.mirror.exists() || search.told <= record.start_step) return;
  if (before.in_mirror) {
    fail("gives up step " + std::to_string(search.told) +
         ", which the first place may have: " + who);
  }
  const auto chain =
      chain_for_copies(before.in_mirror ? before.mirror.directory() : before.first, record);
  for (const auto& [ref, stored] : before.mirror.directory().checkpoints()) {
    if (ref.step <= record.start_step || stored.committed_ms > search.at_ms) continue;
    const std::string path = before.mirror.path_of(ref);
    if (contains(record.damaged, path) || !valid_by_lineage(ref, chain)) continue;
    if (may_be_undone(job, ref)) continue;
    // A mirror that has never held a checkpoint, as far as was told, is not waited for.
    if (search.mirror_failed && mirrored(job) == 0) continue;
    fail("gives up " + path + ": " + who);
  }
}

void Checkers::mirror_updated(const core::MirrorCheckpoint& order, size_t keep,
                              const Directory& first, const Mirror& before, const Mirror& after) {
  const std::string who = "the mirror of job " + to_string(order.job) + ": ";
  const core::UndoneSteps& undone = order.undone;
  if (undone.generation != Generation{}) {
    const auto resumed = resumed_.find({order.job, undone.generation.value});
    if (resumed == resumed_.end() || undone.step < resumed->second) {
      fail(who + "the order names steps as undone that were not");
    }
  }
  const auto& were = before.directory().checkpoints();
  const auto& are = after.directory().checkpoints();
  const auto chain = chain_of_newest(after.directory().records());
  std::set<CheckpointRef> all;
  for (const auto& [ref, stored] : were) {
    if (!is_undone(ref, undone)) all.insert(ref);
  }
  for (const auto& [ref, stored] : are) {
    all.insert(ref);
    const auto was = were.find(ref);
    const bool is_new = was == were.end() || was->second.history != stored.history;
    const StoredCheckpoint* source = first.checkpoint(ref);
    const bool is_sound =
        source != nullptr && !source->damaged && source->history == stored.history;
    if (is_new && !is_sound) fail(who + ref.name() + " is no copy of a sound checkpoint");
  }
  const bool deletes = std::any_of(all.begin(), all.end(),
                                   [&](const CheckpointRef& ref) { return !are.contains(ref); });
  const bool by_node = !order.verified.empty();
  if (deletes && order.asks && !by_node) fail(who + "deletes before anything is verified");
  if (deletes && by_node && !verified_.contains({order.job, order.verified})) {
    fail(who + "deletes although no node has found " + order.verified + " sound");
  }
  size_t valid = 0;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (!valid_by_lineage(*it, chain) || ++valid > keep) continue;
    if (!are.contains(*it)) fail(who + it->name() + " is deleted and was to be kept");
  }
}

void Checkers::loss_justified(const core::Job& job, const Directory& first, const Mirror& mirror,
                              const Search& search) {
  const bool is_lost = job.reason.starts_with(kNoneIsLeft);
  if (!is_lost && !job.reason.starts_with("every checkpoint in ")) return;
  const std::string who = "job " + to_string(job.id) + " failed";
  const std::vector<std::string> damaged(job.damaged.begin(), job.damaged.end());
  const auto chain = chain_of_newest(first.records());
  for (const auto& [ref, stored] : first.checkpoints()) {
    if (stored.committed_ms > search.at_ms || contains(damaged, ref.name())) continue;
    if (valid_by_lineage(ref, chain)) fail(who + " although there is " + ref.name());
  }
  const auto copy = mirror.latest(first.records(), damaged);
  const bool counts = copy && mirrored(job.id) > 0 && !may_be_undone(job.id, *copy);
  if (counts) fail(who + " although there is " + mirror.path_of(*copy));
  if (!is_lost) return;
  const bool was_deleted = std::any_of(lost_.begin(), lost_.end(),
                                       [&](const auto& entry) { return entry.first == job.id; });
  if (!was_deleted) fail(who + " for checkpoints that nobody deleted");
  const bool names_remedy = job.reason.find("restore it") != std::string::npos &&
                            job.reason.find("checkpoint.resume: none") != std::string::npos;
  if (!names_remedy) fail(who + " without a word on what to do");
}

}  // namespace hpctl::sim
