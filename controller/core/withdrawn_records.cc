// SPDX-License-Identifier: Apache-2.0
#include "controller/core/withdrawn_records.h"

#include <algorithm>
#include <iterator>

namespace hpctl::core {

namespace {

constexpr size_t kMostWithdrawn = 8;  // those that no search has met go first

bool matches(const WithdrawnRecord& withdrawn, const FindCheckpoint& order,
             const GenerationRecord& record) {
  return !record.order.empty() && withdrawn.order == record.order &&
         withdrawn.generation.value == record.generation &&
         is_recorded_by(record, order.job.value, order.job_uuid);
}

}  // namespace

void remember_withdrawn(Transition& t, const Action& order) {
  const auto* record = std::get_if<RecordGeneration>(&order.body);
  if (record == nullptr) return;
  Job& job = *t.job(record->job);
  auto& withdrawn = job.withdrawn;
  withdrawn.push_back({record->generation, to_string(order.id)});
  t.changed(job);
  if (withdrawn.size() <= kMostWithdrawn) return;
  const auto newest = std::prev(withdrawn.end());
  const auto absent = std::find_if(withdrawn.begin(), newest,
                                   [](const WithdrawnRecord& other) { return !other.is_there; });
  withdrawn.erase(absent == newest ? withdrawn.begin() : absent);
}

void learn_withdrawn(Transition& t, Job& job, const std::vector<WithdrawnRecord>& there) {
  for (WithdrawnRecord& withdrawn : job.withdrawn) {
    if (std::find(there.begin(), there.end(), withdrawn) == there.end()) continue;
    withdrawn.is_there = true;
    job.directory_generation = std::max(job.directory_generation, withdrawn.generation);
    t.changed(job);
  }
}

bool is_withdrawn(const Job& job, Generation generation, const std::string& order) {
  const WithdrawnRecord wanted{generation, order};
  return !order.empty() &&
         std::find(job.withdrawn.begin(), job.withdrawn.end(), wanted) != job.withdrawn.end();
}

std::vector<Generation> withdrawn_generations(const Job& job) {
  std::vector<Generation> found;
  for (const WithdrawnRecord& withdrawn : job.withdrawn) {
    if (withdrawn.is_there) found.push_back(withdrawn.generation);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<WithdrawnRecord> drop_withdrawn(std::vector<GenerationRecord>& records,
                                            const FindCheckpoint& order) {
  std::vector<WithdrawnRecord> dropped;
  while (!records.empty()) {
    const auto match = std::find_if(order.withdrawn.begin(), order.withdrawn.end(),
                                    [&](const WithdrawnRecord& withdrawn) {
                                      return matches(withdrawn, order, records.back());
                                    });
    if (match == order.withdrawn.end()) break;
    dropped.push_back(*match);
    records.pop_back();
  }
  return dropped;
}

}  // namespace hpctl::core
