// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/liveness.h"

namespace hpctl {

void Liveness::watch(const core::NodeKey& node, const std::string& boot_id, int64_t timeout_ms,
                     int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_[node] = {boot_id, timeout_ms, now_ms};
}

void Liveness::heard(const core::NodeKey& node, const std::string& boot_id, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = entries_.find(node);
  if (it != entries_.end() && it->second.boot_id == boot_id) it->second.heard_ms = now_ms;
}

void Liveness::forget(const core::NodeKey& node, const std::string& boot_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = entries_.find(node);
  if (it != entries_.end() && it->second.boot_id == boot_id) entries_.erase(it);
}

std::set<std::string> Liveness::heard_nodes(JobId job) {
  std::set<std::string> names;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [node, entry] : entries_) {
    if (node.job == job) names.insert(node.name);
  }
  return names;
}

void Liveness::rearm(int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [node, entry] : entries_) entry.heard_ms = now_ms;
}

std::vector<core::NodeLost> Liveness::take_overdue(int64_t now_ms) {
  std::vector<core::NodeLost> lost;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto& [node, entry] = *it;
    const int64_t silent_ms = now_ms - entry.heard_ms;
    if (silent_ms <= entry.timeout_ms) {
      ++it;
      continue;
    }
    lost.push_back({node.job, node.name, entry.boot_id,
                    "no heartbeat for " + std::to_string(silent_ms) + " ms (limit " +
                        std::to_string(entry.timeout_ms) + " ms)"});
    it = entries_.erase(it);
  }
  return lost;
}

}  // namespace hpctl
