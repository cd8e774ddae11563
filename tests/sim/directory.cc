// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/directory.h"

#include <algorithm>
#include <utility>

#include "controller/core/core.h"

namespace hpctl::sim {

bool is_contiguous(const History& history) {
  uint64_t at = 0;
  for (const Segment& segment : history) {
    if (segment.from != at || segment.to < segment.from) return false;
    at = segment.to;
  }
  return true;
}

std::vector<GenerationRecord> chain_before(const Directory& place, const GenerationRecord& next) {
  std::vector<GenerationRecord> records = place.records();
  const auto& withdrawn = next.withdrawn;
  std::erase_if(records, [&](const GenerationRecord& record) {
    return std::find(withdrawn.begin(), withdrawn.end(), record.generation) != withdrawn.end();
  });
  return chain_of_newest(records);
}

Found Directory::find(const std::vector<std::string>& exclude) const {
  return find_on(records_, exclude);
}

Found Directory::find(const core::FindCheckpoint& order,
                      const std::vector<std::string>& exclude) const {
  std::vector<GenerationRecord> records = records_;
  auto withdrawn = core::drop_withdrawn(records, order);
  Found found = find_on(records, exclude);
  found.withdrawn = std::move(withdrawn);
  return found;
}

Found Directory::find_on(const std::vector<GenerationRecord>& records,
                         const std::vector<std::string>& exclude) const {
  Found found;
  if (!records.empty()) found.newest_generation = records.back().generation;
  const auto chain = chain_of_newest(records);
  for (auto it = checkpoints_.rbegin(); it != checkpoints_.rend(); ++it) {
    const std::string name = it->first.name();
    if (std::find(exclude.begin(), exclude.end(), name) != exclude.end()) continue;
    if (!valid_by_lineage(it->first, chain)) continue;
    found.name = name;
    found.step = it->first.step;
    break;
  }
  return found;
}

std::string Directory::confirm(const std::string& name) const {
  const auto ref = parse_checkpoint_name(name);
  if (!ref) return "";
  const StoredCheckpoint* stored = checkpoint(*ref);
  if (stored == nullptr) return "it is missing";
  return stored->damaged ? "the checksum does not match" : "";
}

Creation Directory::create(const GenerationRecord& record, const std::string& author) {
  if (const auto it = authors_.find(record.generation); it != authors_.end()) {
    return it->second == author ? Creation::kOursAlready : Creation::kTaken;
  }
  authors_[record.generation] = author;
  const auto place =
      std::upper_bound(records_.begin(), records_.end(), record,
                       [](const auto& a, const auto& b) { return a.generation < b.generation; });
  records_.insert(place, record);
  return Creation::kCreated;
}

bool Directory::copy_records(const Directory& other) {
  for (const GenerationRecord& record : other.records_) {
    const Creation creation = create(record, other.authors_.at(record.generation));
    if (creation == Creation::kTaken) return false;
  }
  return true;
}

std::string Directory::find_lost(uint64_t committed_step, const Found& found,
                                 const std::vector<std::string>& damaged) const {
  const std::string known = find_known_commit(chain_of_newest(records_));
  const auto ref = parse_checkpoint_name(known);
  const bool is_excluded = std::find(damaged.begin(), damaged.end(), known) != damaged.end();
  const bool is_newer = found.name.empty() || (ref && ref->step > found.step);
  if (ref && is_newer && (found.name.empty() || !is_excluded)) return known;
  const bool is_damaged = std::any_of(damaged.begin(), damaged.end(), [&](const std::string& name) {
    const auto other = parse_checkpoint_name(name);
    return !found.name.empty() && other && other->step == committed_step;
  });
  if (committed_step <= found.step || is_damaged) return "";
  return "a checkpoint of step " + std::to_string(committed_step);
}

bool Directory::commit(const CheckpointRef& ref, StoredCheckpoint checkpoint) {
  return checkpoints_.emplace(ref, std::move(checkpoint)).second;
}

Pruned Directory::prune(const core::PruneCheckpoints& order, size_t keep) {
  const uint64_t generation = order.generation.value;
  Pruned done;
  if (records_.empty() || records_.back().generation > generation) return done;
  const auto chain = chain_of_newest(records_);
  const auto& damaged = chain.front().damaged;
  std::vector<CheckpointRef> valid;  // newest first
  std::vector<CheckpointRef> doomed;
  for (auto it = checkpoints_.rbegin(); it != checkpoints_.rend(); ++it) {
    const CheckpointRef& ref = it->first;
    const bool is_evidence = std::find(damaged.begin(), damaged.end(), ref.name()) != damaged.end();
    if (valid_by_lineage(ref, chain)) {
      valid.push_back(ref);
    } else if (ref.generation < generation && !is_evidence) {
      doomed.push_back(ref);
    }
  }
  if (valid.empty()) return done;
  if (order.for_room && doomed.empty()) {
    keep = std::max<size_t>(1, std::min(keep, valid.size() - 1));
  }
  for (size_t i = keep; i < valid.size(); ++i) doomed.push_back(valid[i]);
  if (doomed.empty()) return done;
  if (order.asks) {
    done.to_verify = valid.front().name();
    return done;
  }
  const CheckpointRef remains = parse_checkpoint_name(order.verified).value_or(valid.front());
  if (std::find(valid.begin(), valid.end(), remains) == valid.end()) {
    done.problem = remains.name() + " was verified and counts no more";
    return done;
  }
  if (order.verified.empty() && checkpoints_.at(remains).damaged) {
    done.problem = remains.name() + " is damaged";
    return done;
  }
  done.verified = remains.name();
  std::erase_if(doomed, [&](const CheckpointRef& ref) {
    return valid_by_lineage(ref, chain) && !(ref < remains);
  });
  std::sort(doomed.begin(), doomed.end());
  for (const CheckpointRef& ref : doomed) {
    checkpoints_.erase(ref);
    done.deleted.push_back(ref.name());
  }
  return done;
}

void Directory::take(uint64_t steps, int64_t now_ms) {
  is_taken_ = true;
  const Found newest = find({});
  GenerationRecord record;
  record.generation = newest.newest_generation + 1;
  record.parent = newest.newest_generation;
  record.start_step = newest.step;
  record.checkpoint = newest.name;
  create(record, "another job");
  StoredCheckpoint saved;
  if (const auto from = parse_checkpoint_name(newest.name)) saved = checkpoints_.at(*from);
  saved.history.push_back({record.generation, newest.step, newest.step + steps});
  saved.committed_ms = now_ms;
  commit({newest.step + steps, record.generation}, saved);
}

const GenerationRecord* Directory::record(uint64_t generation) const {
  for (const auto& record : records_) {
    if (record.generation == generation) return &record;
  }
  return nullptr;
}

const StoredCheckpoint* Directory::checkpoint(const CheckpointRef& ref) const {
  const auto it = checkpoints_.find(ref);
  return it == checkpoints_.end() ? nullptr : &it->second;
}

}  // namespace hpctl::sim
