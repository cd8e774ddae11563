// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/liveness.h"

#include <algorithm>
#include <utility>

namespace hpctl {
namespace {

constexpr int64_t kAnswerLastsMs = 500;    // then it is asked again
constexpr int64_t kAnswerLimitMs = 1'000;  // whoever asked has not said what came of it

}  // namespace

void Liveness::watch(const core::NodeKey& node, const std::string& boot_id, int64_t timeout_ms,
                     int64_t now_ms, const std::string& probe_at) {
  Entry entry;
  entry.boot_id = boot_id;
  entry.timeout_ms = timeout_ms;
  entry.heard_ms = now_ms;
  entry.probe_at = probe_at;
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_[node] = std::move(entry);
}

void Liveness::expect(const core::NodeKey& node, int64_t timeout_ms, int64_t now_ms,
                      const std::string& probe_at) {
  Entry entry;
  entry.timeout_ms = timeout_ms;
  entry.heard_ms = now_ms;
  entry.probe_at = probe_at;
  entry.is_closed = entry.can_be_probed = entry.is_expected = true;
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.try_emplace(node, std::move(entry));  // it may have registered meanwhile
}

Liveness::Entry* Liveness::find(const core::NodeKey& node, const std::string& boot_id) {
  const auto it = entries_.find(node);
  return it == entries_.end() || it->second.boot_id != boot_id ? nullptr : &it->second;
}

void Liveness::heard(const core::NodeKey& node, const std::string& boot_id, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry* entry = find(node, boot_id);
  if (entry == nullptr) return;
  entry->heard_ms = now_ms;
  if (entry->beats == Beats::kAsked) entry->beats = Beats::kOften;
  silent_jobs_.erase(node.job);
}

void Liveness::may_beat_seldom(const core::NodeKey& node, const std::string& boot_id,
                               int64_t every_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry* entry = find(node, boot_id);
  if (entry == nullptr) return;
  entry->beats = Beats::kSeldom;
  entry->seldom_every_ms = every_ms;
}

void Liveness::asked_to_beat(const core::NodeKey& node, const std::string& boot_id,
                             int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry* entry = find(node, boot_id);
  if (entry == nullptr || entry->beats != Beats::kSeldom) return;
  entry->beats = Beats::kAsked;
  entry->often_since_ms = now_ms;
}

void Liveness::forget(const core::NodeKey& node, const std::string& boot_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = entries_.find(node);
  if (it != entries_.end() && it->second.boot_id == boot_id) entries_.erase(it);
}

void Liveness::closed(const core::NodeKey& node, const std::string& boot_id, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry* entry = find(node, boot_id);
  if (entry == nullptr) return;
  entry->is_closed = true;
  if (std::exchange(entry->beats, Beats::kOften) == Beats::kSeldom) entry->often_since_ms = now_ms;
}

// Between two beats of a node that beats seldom none is due.
int64_t Liveness::awaited_ms(const Entry& entry, int64_t now_ms) {
  if (entry.beats == Beats::kSeldom) return 0;
  return now_ms - std::max(entry.heard_ms, entry.often_since_ms);
}

bool Liveness::is_heard(const Entry& entry, int64_t now_ms) {
  if (entry.beats != Beats::kSeldom) return awaited_ms(entry, now_ms) <= kHeardMs;
  return now_ms - entry.heard_ms <= entry.seldom_every_ms + kHeardMs;
}

void Liveness::given_up(const core::NodeKey& node, bool is_awaited) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = entries_.find(node);
  if (it == entries_.end() || (it->second.is_expected && is_awaited)) return;
  if (it->second.is_closed) entries_.erase(it);
}

std::set<std::string> Liveness::heard_nodes(JobId job, int64_t now_ms) {
  std::set<std::string> names;
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool says_nothing = suspended_.contains(job);
  for (const auto& [node, entry] : entries_) {
    if (node.job != job || entry.is_closed) continue;
    if (says_nothing || is_heard(entry, now_ms)) names.insert(node.name);
  }
  return names;
}

void Liveness::rearm(int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [node, entry] : entries_) entry.heard_ms = now_ms;
}

void Liveness::suspend(JobId job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  suspended_.insert(job);
}

void Liveness::rearm(JobId job, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  suspended_.erase(job);
  silent_jobs_.erase(job);
  for (auto& [node, entry] : entries_) {
    if (node.job == job) entry.heard_ms = now_ms;
  }
}

std::vector<JobId> Liveness::take_silent_jobs(int64_t now_ms) {
  std::map<JobId, bool> silent;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [node, entry] : entries_) {
    if (entry.is_closed) continue;
    const bool overdue = now_ms - entry.heard_ms > entry.timeout_ms / 2;
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

bool Liveness::is_held(JobId job) const {
  if (suspended_.contains(job)) return true;
  const auto asked = silent_jobs_.find(job);
  return asked != silent_jobs_.end() && !asked->second;
}

core::HolderProbe Liveness::probe_of(const Entry& entry, int64_t now_ms) {
  if (!entry.can_be_probed) return core::HolderProbe::kImpossible;
  if (entry.probed_ms <= entry.heard_ms) return core::HolderProbe::kNotAsked;
  const int64_t limit = entry.answer == core::HolderProbe::kAsked ? kAnswerLimitMs : kAnswerLastsMs;
  return now_ms - entry.probed_ms > limit ? core::HolderProbe::kNotAsked : entry.answer;
}

void Liveness::begin_probe(const core::NodeKey& node, Entry& entry, int64_t now_ms, Findings& out) {
  if (out.probes.size() >= kProbesAtOnce) return;
  out.probes.push_back({node, entry.boot_id, entry.probe_at});
  entry.was_probed = true;
  entry.probed_ms = now_ms;
  entry.answer = core::HolderProbe::kAsked;
}

void Liveness::judge_one(const core::NodeKey& node, const core::NodeObservation& seen,
                         int64_t now_ms, Findings& out) {
  const auto it = entries_.find(node);
  Entry& entry = it->second;
  core::NodeObservation facts = seen;
  facts.silent_ms = now_ms - entry.heard_ms;
  facts.unasked_ms = facts.silent_ms - awaited_ms(entry, now_ms);
  facts.was_asked = entry.beats == Beats::kAsked;
  facts.timeout_ms = entry.timeout_ms;
  facts.probe = probe_of(entry, now_ms);
  core::FailureVerdict verdict = core::judge_node(facts);
  if (verdict.kind == core::FailureVerdict::Kind::kProbe) {
    begin_probe(node, entry, now_ms, out);
  } else if (verdict.kind == core::FailureVerdict::Kind::kLost) {
    out.lost.push_back({.job = node.job,
                        .node = node.name,
                        .boot_id = entry.boot_id,
                        .cause = std::move(verdict.reason),
                        .unreachable = facts.probe == core::HolderProbe::kUnanswered});
    entries_.erase(it);
  }
}

Liveness::Findings Liveness::judge(int64_t now_ms, const Sight& sight) {
  Findings findings;
  std::map<JobId, std::set<std::string>> silent;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [node, entry] : entries_) {
    if (!entry.was_probed && !entry.probe_at.empty()) begin_probe(node, entry, now_ms, findings);
    const bool is_awaited =
        awaited_ms(entry, now_ms) >= core::probe_after_ms(entry.beats == Beats::kAsked);
    const bool is_late = now_ms - entry.heard_ms > entry.timeout_ms;
    if (is_awaited || is_late) silent[node.job].insert(node.name);
  }
  for (const auto& [job, names] : silent) {
    if (is_held(job)) continue;
    auto seen = sight(job, names);
    for (const std::string& name : names) judge_one({job, name}, seen[name], now_ms, findings);
  }
  return findings;
}

bool Liveness::probed(const Probe& probe, core::HolderProbe answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = entries_.find(probe.node);
  if (it == entries_.end() || it->second.boot_id != probe.boot_id) return false;
  const bool is_process_gone = it->second.is_expected && answer == core::HolderProbe::kRefused;
  it->second.answer = is_process_gone ? core::HolderProbe::kAnswered : answer;
  if (answer != core::HolderProbe::kAnswered) return false;
  return !std::exchange(it->second.can_be_probed, true);
}

}  // namespace hpctl
