// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/job_reports.h"

#include <algorithm>
#include <utility>

namespace hpctl::cluster {
namespace {

bool has_ended(const JobReports::Heard& heard) { return heard.summary.ended_wall_ms() > 0; }

}  // namespace

bool JobReports::hear(const JobKey& key, v1::JobSummary summary, int64_t now_ms) {
  Heard& heard = present_[key];
  const bool had_ended = has_ended(heard);
  heard = {key, std::move(summary), now_ms};
  return has_ended(heard) && !had_ended;
}

bool JobReports::retain(const std::set<JobKey>& present, int64_t now_ms) {
  bool has_changed = false;
  for (auto it = present_.begin(); it != present_.end();) {
    if (present.contains(it->first)) {
      ++it;
      continue;
    }
    if (has_ended(it->second)) {
      ended_.push_back({std::move(it->second), now_ms});
      has_changed = true;
    }
    it = present_.erase(it);
  }
  std::erase_if(since_ms_, [&](const auto& known) { return !present.contains(known.first); });
  for (const JobKey& key : present) since_ms_.try_emplace(key, now_ms);
  if (std::exchange(just_restored_, false)) {
    for (Ended& ended : ended_) {
      if (present.contains(ended.heard.key)) present_.try_emplace(ended.heard.key, ended.heard);
    }
  }
  // A number that is there again is another job, or another life of it.
  const size_t erased = std::erase_if(ended_, [&](const Ended& ended) {
    return ended.gone_ms + kEndedMs <= now_ms || present.contains(ended.heard.key);
  });
  keep_newest();
  return has_changed || erased > 0;
}

std::vector<JobReports::Ended> JobReports::kept(int64_t now_ms) const {
  std::vector<Ended> kept = ended_;
  for (const auto& [key, heard] : present_) {
    if (has_ended(heard)) kept.push_back({heard, now_ms});
  }
  return kept;
}

void JobReports::restore(std::vector<Ended> kept) {
  just_restored_ = true;
  ended_ = std::move(kept);
  std::stable_sort(ended_.begin(), ended_.end(),
                   [](const Ended& a, const Ended& b) { return a.gone_ms < b.gone_ms; });
  keep_newest();
}

void JobReports::keep_newest() {
  if (ended_.size() <= kMostEnded) return;
  ended_.erase(ended_.begin(), ended_.end() - static_cast<std::ptrdiff_t>(kMostEnded));
}

const JobReports::Heard* JobReports::find(const JobKey& key) const {
  const auto heard = present_.find(key);
  return heard == present_.end() ? nullptr : &heard->second;
}

int64_t JobReports::silent_ms(const JobKey& key, int64_t now_ms) const {
  if (const Heard* heard = find(key)) return std::max<int64_t>(0, now_ms - heard->at_ms);
  const auto since = since_ms_.find(key);
  return since == since_ms_.end() ? 0 : std::max<int64_t>(0, now_ms - since->second);
}

std::vector<JobReports::Heard> JobReports::ended() const {
  std::map<JobKey, Heard> ended;
  for (const Ended& gone : ended_) ended[gone.heard.key] = gone.heard;
  for (const auto& [key, heard] : present_) {
    if (has_ended(heard)) ended[key] = heard;
  }
  std::vector<Heard> list;
  list.reserve(ended.size());
  for (auto& [key, heard] : ended) list.push_back(std::move(heard));
  return list;
}

std::vector<JobReports::Heard> JobReports::all() const {
  std::vector<Heard> list;
  list.reserve(present_.size() + ended_.size());
  for (const auto& [key, heard] : present_) list.push_back(heard);
  for (auto ended = ended_.rbegin(); ended != ended_.rend(); ++ended) list.push_back(ended->heard);
  return list;
}

}  // namespace hpctl::cluster
