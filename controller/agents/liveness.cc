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
  if (it == entries_.end() || it->second.boot_id != boot_id) return;
  it->second.heard_ms = now_ms;
  silent_jobs_.erase(node.job);
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

void Liveness::rearm(JobId job, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  silent_jobs_.erase(job);
  for (auto& [node, entry] : entries_) {
    if (node.job == job) entry.heard_ms = now_ms;
  }
}

std::vector<JobId> Liveness::take_silent_jobs(int64_t now_ms) {
  std::map<JobId, bool> silent;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [node, entry] : entries_) {
    const bool overdue = now_ms - entry.heard_ms > entry.timeout_ms;
    const auto [job, is_first] = silent.emplace(node.job, overdue);
    job->second = job->second && overdue;
  }
  std::vector<JobId> jobs;
  for (const auto& [job, all] : silent) {
    if (all && silent_jobs_.emplace(job, false).second) jobs.push_back(job);
  }
  return jobs;
}

void Liveness::answered(JobId job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = silent_jobs_.find(job); it != silent_jobs_.end()) it->second = true;
}

std::vector<core::NodeLost> Liveness::take_overdue(int64_t now_ms) {
  std::vector<core::NodeLost> lost;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto& [node, entry] = *it;
    const int64_t silent_ms = now_ms - entry.heard_ms;
    const auto asked = silent_jobs_.find(node.job);
    const bool held = asked != silent_jobs_.end() && !asked->second;
    if (silent_ms <= entry.timeout_ms || held) {
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
