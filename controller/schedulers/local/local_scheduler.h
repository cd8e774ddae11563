// SPDX-License-Identifier: Apache-2.0
// The local backend: a virtual node is one holder process on this machine, in a new session, so it
// outlives the controller. The node's lock file decides which process is the node, never the
// starter; of two holders racing for the lock one ends at once. A holder carries the action that
// launched it, which distinguishes a repeated launch after a restart of the controller from a new
// one. The repeated launch acknowledges the holder it finds. The new one replaces it, because the
// core launches a node only after it has given up the former session, which may hang.
//
// A lock file that cannot be looked at (EIO, ESTALE) does not mean that there is no holder: the
// scheduler looks again every second, and reports no lost node meanwhile.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/job/paths.h"
#include "controller/schedulers/process_watch.h"
#include "controller/schedulers/scheduler.h"

namespace hpctl {

class LocalScheduler final : public Scheduler {
 public:
  LocalScheduler(const HomePaths& paths, std::string agent_program, Post post);

  void resume(const core::State& state) override;
  // A holder of an earlier launch is ended first, without a word.
  core::EventBody launch(ActionId id, const core::LaunchNode& action) override;
  void registered(const core::NodeKey& node, uint64_t holder_pid) override {
    watch(node, holder_pid);
  }
  void stop() override;

  // Pid in the node's lock file when that lock is held by a living process; 0 = there is none. An
  // error: the lock file cannot be looked at.
  Result<uint64_t> present_holder(const core::NodeKey& node) const;

 private:
  // The holder of a node has ended, or may have ended.
  struct Change {
    core::NodeKey node;
    uint64_t pid = 0;
    std::string cause;
    bool has_ended = false;
  };

  void watch(const core::NodeKey& node, uint64_t pid);
  void holder_ended(const core::NodeKey& node, uint64_t pid, const std::string& cause);
  // Watches the holder that the node has, or reports the node lost. An error: the lock file cannot
  // be looked at.
  Outcome settle(const Change& change);
  void settle_or_wait(const Change& change);
  void settle_later(const std::stop_token& stopped);  // the loop of a thread
  void report_lost(const core::NodeKey& node, uint64_t pid, const std::string& cause);
  // Ok also when there is nothing to end.
  Outcome end_former_life(uint64_t pid, const core::NodeKey& node);

  const HomePaths paths_;
  const std::string agent_program_;
  const Post post_;
  std::mutex mutex_;
  std::map<uint64_t, core::NodeKey> nodes_;  // by holder pid
  std::vector<Change> unsettled_;
  std::condition_variable_any has_unsettled_;
  ProcessWatch watch_;  // its thread uses the above
  std::jthread looks_;  // last: it uses the watch too
};

}  // namespace hpctl
