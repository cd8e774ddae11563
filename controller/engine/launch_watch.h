// SPDX-License-Identifier: Apache-2.0
// LaunchWatch: launches of nodes that a silent file system holds up. A launch touches the job's
// directory, in the node's lane (task_lanes.h). While the directory is silent the lane hangs. That
// is neither an attempt nor the node's fault, so the core hears of it before limits.launch would
// count it as one.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "controller/core/core.h"
#include "controller/engine/task_lanes.h"

namespace hpctl {

// Owner thread only, except the tasks.
class LaunchWatch {
 public:
  static constexpr int64_t kSilentMs = 10'000;

  explicit LaunchWatch(const Clock& clock) : clock_(clock) {}

  // For the node's lane: `task` carries out the order, unless that is over before its turn.
  TaskLanes::Task watched(ActionId order, const core::LaunchNode& launch, TaskLanes::Task task);
  // The order has left the outbox.
  void over(ActionId order);
  // Open orders whose lane has been at one task for kSilentMs, and those that have waited as long
  // for their turn while another lane hangs: the lanes share few threads. Each order once.
  std::vector<core::ActionFailed> take_held_up();

 private:
  struct Lane {
    std::atomic<int64_t> began_ms{0};  // of the task that runs; 0 = none does
  };
  struct Launch {
    core::LaunchNode launch;
    int64_t ordered_ms = 0;
    std::shared_ptr<Lane> lane;
    std::shared_ptr<std::atomic<bool>> is_wanted;
  };

  bool has_hung(const Lane& lane) const;
  bool has_hung_lane() const;

  const Clock& clock_;
  std::map<core::NodeKey, std::shared_ptr<Lane>> lanes_;
  std::map<ActionId, Launch> open_;
};

}  // namespace hpctl
