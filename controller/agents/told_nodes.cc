// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/told_nodes.h"

#include <algorithm>

namespace hpctl {

void ToldNodes::told(const core::NodeKey& node, const std::string& boot_id,
                     const std::string& reason, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Told& told = told_.try_emplace(node.job, Told{now_ms, {}}).first->second;
  told.nodes.insert_or_assign(node.name, core::NodeDeparts{node.job, node.name, boot_id, reason});
}

std::vector<core::NodeDeparts> ToldNodes::take(int64_t now_ms, bool ends_jobs, const Heard& heard) {
  std::vector<core::NodeDeparts> departures;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(told_, [&](const auto& entry) {
    const auto& [job, told] = entry;
    const std::set<std::string> names = ends_jobs ? heard(job) : std::set<std::string>{};
    const bool all = ends_jobs && std::all_of(names.begin(), names.end(), [&](const auto& name) {
                       return told.nodes.contains(name);
                     });
    if (all) whole_.insert(job);
    if (all || now_ms - told.first_ms < kTogetherMs) return all;
    for (const auto& [name, departure] : told.nodes) departures.push_back(departure);
    return true;
  });
  return departures;
}

bool ToldNodes::take_whole(JobId job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return whole_.erase(job) > 0;
}

}  // namespace hpctl
