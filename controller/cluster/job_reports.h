// SPDX-License-Identifier: Apache-2.0
// The last answers of the jobs' controllers. The end of a job stays for an hour after its
// controller is gone, so that a scrape and an alert see it (decision 1606); other jobs leave
// nothing. Pure: times are the caller's, of one monotonic clock. Not for several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "controller/cluster/job_row.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::cluster {

class JobReports {
 public:
  static constexpr int64_t kEndedMs = 3'600'000;
  static constexpr size_t kMostEnded = 1'000;  // the newest; some 300 bytes each

  struct Heard {
    JobKey key;
    v1::JobSummary summary;
    int64_t at_ms = 0;
  };

  struct Ended {
    Heard heard;
    int64_t gone_ms = 0;  // since then its controller is gone
  };

  // True if this is the first word that the job has ended: kept() has one more.
  bool hear(const JobKey& key, v1::JobSummary summary, int64_t now_ms);
  // These have a controller, or are to get one again, and others have not. True where that has
  // changed kept().
  bool retain(const std::set<JobKey>& present, int64_t now_ms);
  // Ended jobs, for the next service: those without a controller, oldest first, then those that
  // still have one, as if it went at `now_ms`.
  std::vector<Ended> kept(int64_t now_ms) const;
  // Entries of the service before this one. A job that still has a controller in the next retain()
  // counts as answered: its controller may end before the next query.
  void restore(std::vector<Ended> kept);
  // nullptr: no such job is there, or it has said nothing yet.
  const Heard* find(const JobKey& key) const;
  // The time without an answer: for a job that has never answered, since it exists.
  int64_t silent_ms(const JobKey& key, int64_t now_ms) const;
  // Those that have said how they ended, by key: also of those that are there still.
  std::vector<Heard> ended() const;
  // Those that are there, by key; then those that have ended, the newest first.
  std::vector<Heard> all() const;

 private:
  void keep_newest();

  std::map<JobKey, Heard> present_;
  std::map<JobKey, int64_t> since_ms_;  // of those that are there, whether they have said anything
  std::vector<Ended> ended_;            // oldest first
  bool just_restored_ = false;          // no retain() since restore()
};

}  // namespace hpctl::cluster
