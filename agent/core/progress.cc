// SPDX-License-Identifier: Apache-2.0
#include "agent/core/progress.h"

namespace hpctl::agent {

void ProgressWatch::worker_started(int32_t rank, uint64_t generation, bool shows_steps) {
  watched_[rank] = Watched{generation, shows_steps};
}

void ProgressWatch::worker_ended(int32_t rank, uint64_t generation) {
  const auto found = watched_.find(rank);
  if (found != watched_.end() && found->second.generation == generation) watched_.erase(found);
}

ProgressWatch::Findings ProgressWatch::sampled(int32_t rank, uint64_t generation,
                                               const ProgressSample& sample) {
  Findings findings;
  const auto found = watched_.find(rank);
  if (!sample.mapped || found == watched_.end() || found->second.generation != generation) {
    return findings;
  }
  if (!found->second.stepped && sample.first_step != UnixTime()) {
    found->second.stepped = true;
    findings.first_step = true;
  }
  findings.step = sample.step != found->second.step;
  found->second.step = sample.step;
  findings.commit = committed(generation, sample.checkpoint_step);
  return findings;
}

std::optional<Commit> ProgressWatch::committed(uint64_t generation, uint64_t step) {
  const Commit commit{generation, step};
  if (step == 0 || commit <= reported_.commit) return std::nullopt;
  reported_.commit = commit;
  return commit;
}

std::vector<BadStepNews> ProgressWatch::bad_step(uint64_t generation, int32_t rank,
                                                 const std::vector<BadStep>& steps) {
  std::vector<BadStepNews> news;
  if (rank != 0) return news;
  BadStepMark& last = reported_.bad_step;
  for (const BadStep& step : steps) {
    const BadStepMark mark{generation, step.number};
    if (step.number == 0 || mark <= last) continue;
    const uint64_t seen = last.generation == generation ? last.number : 0;
    news.push_back({mark, step, step.number - seen - 1});
    last = mark;
  }
  return news;
}

bool ProgressWatch::awaits_first_step() const {
  for (const auto& [rank, watched] : watched_) {
    if (watched.shows_steps && !watched.stepped) return true;
  }
  return false;
}

}  // namespace hpctl::agent
