// SPDX-License-Identifier: Apache-2.0
// Nodes whose holders got SIGTERM, and what that means.
//
// Slurm signals every step of a job that it preempts or that somebody cancels with `scancel -s
// TERM`; a person may also signal the step of one node. So the first such report is kept for
// kTogetherMs:
//
//   all nodes that are heard were told   the job is to end; JobMode asks Slurm why
//   otherwise                            these nodes depart (core event NodeDeparts)
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "controller/core/events.h"

namespace hpctl {

class ToldNodes {
 public:
  static constexpr int64_t kTogetherMs = 2'000;
  using Heard = std::function<std::set<std::string>(JobId job)>;  // nodes with recent heartbeats

  void told(const core::NodeKey& node, const std::string& boot_id, const std::string& reason,
            int64_t now_ms);
  // The departures that are known by now. Where nodes do not speak for their job (`ends_jobs` is
  // false: the local backend), all of them depart.
  std::vector<core::NodeDeparts> take(int64_t now_ms, bool ends_jobs, const Heard& heard);
  // Once: all nodes of the job were told.
  bool take_whole(JobId job);

 private:
  struct Told {
    int64_t first_ms = 0;
    std::map<std::string, core::NodeDeparts> nodes;  // by name
  };

  std::mutex mutex_;
  std::map<JobId, Told> told_;
  std::set<JobId> whole_;
};

}  // namespace hpctl
