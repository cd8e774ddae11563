// SPDX-License-Identifier: Apache-2.0
// Which agents are within their heartbeat deadline: a soft table, never stored. Only the transition
// is an event (NodeLost). An agent is in the table while its stream is open; a closed stream is the
// core's business, which gives the agent time to reconnect.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "controller/core/events.h"

namespace hpctl {

// Any thread.
class Liveness {
 public:
  void watch(const core::NodeKey& node, const std::string& boot_id, int64_t timeout_ms,
             int64_t now_ms);
  void heard(const core::NodeKey& node, const std::string& boot_id, int64_t now_ms);
  void forget(const core::NodeKey& node, const std::string& boot_id);
  // Names of the job's nodes in the table.
  std::set<std::string> heard_nodes(JobId job);
  // Everybody gets a fresh deadline.
  void rearm(int64_t now_ms);
  void rearm(JobId job, int64_t now_ms);
  // Jobs whose nodes have all fallen silent: the scheduler may have suspended them. None of their
  // nodes is overdue until somebody answered; each job once, until it is heard of again.
  std::vector<JobId> take_silent_jobs(int64_t now_ms);
  // It is not suspended.
  void answered(JobId job);
  // Nodes whose deadline has passed; they leave the table.
  std::vector<core::NodeLost> take_overdue(int64_t now_ms);

 private:
  struct Entry {
    std::string boot_id;
    int64_t timeout_ms = 0;
    int64_t heard_ms = 0;
  };

  std::mutex mutex_;
  std::map<JobId, bool> silent_jobs_;  // whether somebody answered
  std::map<core::NodeKey, Entry> entries_;
};

}  // namespace hpctl
