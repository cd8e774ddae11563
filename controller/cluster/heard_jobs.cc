// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/heard_jobs.h"

#include <utility>

namespace hpctl::cluster {

void HeardJobs::hear(const JobKey& key, v1::JobSummary summary, int64_t now_ms) {
  present_[key] = {key, std::move(summary), now_ms};
}

void HeardJobs::retain(const std::set<JobKey>& present, int64_t now_ms) {
  for (auto it = present_.begin(); it != present_.end();) {
    if (present.contains(it->first)) {
      ++it;
      continue;
    }
    if (it->second.summary.ended_wall_ms() > 0) ended_.push_back({std::move(it->second), now_ms});
    it = present_.erase(it);
  }
  // A number that is there again is another job, or another life of it.
  std::erase_if(ended_, [&](const Ended& ended) {
    return ended.gone_ms + kEndedMs <= now_ms || present.contains(ended.heard.key);
  });
  if (ended_.size() > kMostEnded) {
    ended_.erase(ended_.begin(), ended_.end() - static_cast<std::ptrdiff_t>(kMostEnded));
  }
}

const HeardJobs::Heard* HeardJobs::find(const JobKey& key) const {
  const auto heard = present_.find(key);
  return heard == present_.end() ? nullptr : &heard->second;
}

std::vector<HeardJobs::Heard> HeardJobs::all() const {
  std::vector<Heard> list;
  list.reserve(present_.size() + ended_.size());
  for (const auto& [key, heard] : present_) list.push_back(heard);
  for (auto ended = ended_.rbegin(); ended != ended_.rend(); ++ended) list.push_back(ended->heard);
  return list;
}

}  // namespace hpctl::cluster
