// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/directory.h"

#include <algorithm>

namespace hpctl::sim {

bool is_contiguous(const History& history) {
  uint64_t at = 0;
  for (const Segment& segment : history) {
    if (segment.from != at || segment.to < segment.from) return false;
    at = segment.to;
  }
  return true;
}

Found Directory::find(const std::vector<std::string>& exclude) const {
  Found found;
  if (!records_.empty()) found.newest_generation = records_.back().generation;
  const auto chain = chain_of_newest(records_);
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
  const StoredCheckpoint* stored = ref ? checkpoint(*ref) : nullptr;
  return stored != nullptr && stored->damaged ? "the checksum does not match" : "";
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

bool Directory::commit(const CheckpointRef& ref, StoredCheckpoint checkpoint) {
  return checkpoints_.emplace(ref, std::move(checkpoint)).second;
}

Pruned Directory::prune(uint64_t generation) {
  Pruned done;
  if (records_.empty() || records_.back().generation > generation) return done;
  const auto chain = chain_of_newest(records_);
  const auto counts = [&](const auto& stored) { return valid_by_lineage(stored.first, chain); };
  const auto newest = std::find_if(checkpoints_.rbegin(), checkpoints_.rend(), counts);
  if (newest == checkpoints_.rend()) return done;
  if (newest->second.damaged) {
    done.problem = newest->first.name() + " is damaged";
    return done;
  }
  done.verified = newest->first.name();
  const auto& damaged = chain.front().damaged;
  std::erase_if(checkpoints_, [&](const auto& stored) {
    const std::string name = stored.first.name();
    const bool is_own = stored.first.generation >= generation && !counts(stored);
    const bool is_evidence = std::find(damaged.begin(), damaged.end(), name) != damaged.end();
    if (name == done.verified || is_own || is_evidence) return false;
    done.deleted.push_back(name);
    return true;
  });
  if (done.deleted.empty()) done.verified.clear();
  return done;
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
