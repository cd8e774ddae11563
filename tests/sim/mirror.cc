// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/mirror.h"

#include <algorithm>
#include <utility>

namespace hpctl::sim {

namespace {

// The manifests of both have the same bytes.
bool is_same(const StoredCheckpoint* a, const StoredCheckpoint* b) {
  return a != nullptr && b != nullptr && a->history == b->history && a->digest == b->digest;
}

}  // namespace

bool is_undone(const CheckpointRef& ref, const core::UndoneSteps& undone) {
  return undone.generation != Generation{} && ref.generation == undone.generation.value &&
         ref.step > undone.step;
}

std::optional<CheckpointRef> Mirror::ref_of(const std::string& path) const {
  if (!exists() || !path.starts_with(path_ + "/")) return std::nullopt;
  return parse_checkpoint_name(path.substr(path_.size() + 1));
}

const StoredCheckpoint* Mirror::checkpoint(const std::string& path) const {
  const auto ref = ref_of(path);
  return ref ? copies_.checkpoint(*ref) : nullptr;
}

std::string Mirror::confirm(const std::string& path) const {
  const auto ref = ref_of(path);
  return ref ? copies_.confirm(ref->name()) : "";
}

std::optional<CheckpointRef> Mirror::latest(const std::vector<GenerationRecord>& records,
                                            const std::vector<std::string>& exclude) const {
  std::vector<GenerationRecord> chain = chain_of_newest(records);
  std::set<std::string> unusable(exclude.begin(), exclude.end());
  for (GenerationRecord& record : chain) {
    unusable.insert(record.damaged.begin(), record.damaged.end());
    record.damaged.clear();  // names mean the first place
  }
  const auto& stored = copies_.checkpoints();
  for (auto it = stored.rbegin(); it != stored.rend(); ++it) {
    if (unusable.contains(path_of(it->first))) continue;
    if (valid_by_lineage(it->first, chain)) return it->first;
  }
  return std::nullopt;
}

Found Mirror::find(const Directory& first, const core::FindCheckpoint& order) const {
  std::vector<GenerationRecord> records = order.first.away ? copies_.records() : first.records();
  auto withdrawn = core::drop_withdrawn(records, order);
  std::vector<std::string> exclude = order.exclude;
  for (const auto& [ref, stored] : copies_.checkpoints()) {
    if (is_undone(ref, order.undone)) exclude.push_back(path_of(ref));
  }
  Found found;
  found.withdrawn = std::move(withdrawn);
  if (!records.empty()) found.newest_generation = records.back().generation;
  if (const auto newest = latest(records, exclude)) {
    found.name = path_of(*newest);
    found.step = newest->step;
  }
  return found;
}

bool Mirror::give_back(Directory& first, uint64_t newest) const {
  if (!exists() || copies_.newest_generation() < newest) return false;
  return first.copy_records(copies_);
}

void Mirror::copy_newest(const Directory& first, const CheckpointRef& source, const CopyRun& run,
                         Copied& done) {
  const StoredCheckpoint& from = *first.checkpoint(source);
  if (is_same(&from, copies_.checkpoint(source))) return;
  if (from.damaged) {
    done.problem = source.name() + " is damaged";
    return;
  }
  copies_.remove(source);  // of steps that were undone
  if (run.is_cut) {
    unfinished_.insert(source);
    done.failure = "the copy was cut short";
    return;
  }
  unfinished_.erase(source);
  StoredCheckpoint made = from;
  made.committed_ms = run.now_ms;
  copies_.commit(source, std::move(made));
  done.is_new = true;
}

Copied Mirror::copy(Directory& first, const core::MirrorCheckpoint& order, const CopyRun& run) {
  Copied done;
  const uint64_t newest = order.generation.value;
  const bool has_lineage = first.newest_generation() >= newest || give_back(first, newest);
  if (!has_lineage || !copies_.copy_records(first)) {
    done.failure = "the records of the two places do not fit";
    return done;
  }
  std::vector<CheckpointRef> undone;
  for (const auto& [ref, stored] : copies_.checkpoints()) {
    if (is_undone(ref, order.undone) && !is_same(&stored, first.checkpoint(ref))) {
      undone.push_back(ref);
    }
  }
  for (const CheckpointRef& ref : undone) copies_.remove(ref);
  if (!order.verified.empty()) prune(order, order.verified, run.keep, done);
  const std::string refusal = std::exchange(done.problem, {});
  const auto source = parse_checkpoint_name(first.find(order.damaged).name);
  auto held = latest(first.records(), order.damaged);
  const bool is_newer = source && (!held || held->step <= source->step);
  std::erase_if(unfinished_, [&](const CheckpointRef& ref) { return !is_newer || ref != *source; });
  if (is_newer) copy_newest(first, *source, run, done);
  if (!done.failure.empty()) return done;
  if (is_newer && done.problem.empty()) held = source;
  if (held) {
    done.name = held->name();
    done.step = held->step;
  }
  if (done.problem.empty()) done.problem = refusal;
  if (done.problem.empty()) prune(order, "", run.keep, done);
  return done;
}

void Mirror::prune(const core::MirrorCheckpoint& order, const std::string& verified, size_t keep,
                   Copied& done) {
  core::PruneCheckpoints wanted{order.job, order.generation};
  wanted.asks = order.asks && verified.empty();
  if (const auto ref = ref_of(verified)) wanted.verified = ref->name();
  const Pruned pruned = copies_.prune(wanted, keep);
  done.deleted.insert(done.deleted.end(), pruned.deleted.begin(), pruned.deleted.end());
  done.problem = pruned.problem;
  if (!pruned.verified.empty()) done.verified = path_ + "/" + pruned.verified;
  if (!pruned.to_verify.empty()) done.to_verify = path_ + "/" + pruned.to_verify;
}

}  // namespace hpctl::sim
