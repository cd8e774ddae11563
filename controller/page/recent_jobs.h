// SPDX-License-Identifier: Apache-2.0
// A value for each job that runs, and for the kMostEnded ended jobs that ended or were looked at
// last. Not for more than one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <map>

#include "common/job/ids.h"

namespace hpctl {

template <typename T>
class RecentJobs {
 public:
  static constexpr size_t kMostEnded = 32;

  // Of a job that runs; a new value where there is none.
  T& of_running(JobId job) {
    ended_.remove(job);  // it goes on
    return values_[job];
  }
  // nullptr: there is none, or no longer.
  const T* look(JobId job) {
    const auto found = values_.find(job);
    if (found == values_.end()) return nullptr;
    const auto place = std::find(ended_.begin(), ended_.end(), job);
    if (place != ended_.end()) ended_.splice(ended_.begin(), ended_, place);
    return &found->second;
  }
  // May be called again and again.
  void end(JobId job) {
    if (!values_.contains(job)) return;
    if (std::find(ended_.begin(), ended_.end(), job) != ended_.end()) return;
    ended_.push_front(job);
    if (ended_.size() <= kMostEnded) return;
    values_.erase(ended_.back());
    ended_.pop_back();
  }
  size_t size() const { return values_.size(); }

 private:
  std::map<JobId, T> values_;
  std::list<JobId> ended_;  // the last used first
};

}  // namespace hpctl
