// SPDX-License-Identifier: Apache-2.0
// The local backend: a virtual node is one holder process on this machine, in a session of its own,
// so that it outlives the controller. Which process is the node is decided by the node's lock file,
// never by who started it; of two holders racing for the lock one ends at once. A holder carries
// the action that launched it, so that a launch done again after a restart of the controller is
// told from a new one: the first acknowledges the holder it finds, the second replaces it, because
// the core launches a node only after it has given up the former life, which may hang.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "common/base/paths.h"
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
  void stop() override { watch_.stop(); }

  // Pid in the node's lock file when that lock is held by a living process; else 0.
  uint64_t present_holder(const core::NodeKey& node) const;

 private:
  void watch(const core::NodeKey& node, uint64_t pid);
  void holder_ended(const core::NodeKey& node, uint64_t pid, const std::string& cause);
  // Ok also when there is nothing to end.
  Outcome end_former_life(uint64_t pid, const core::NodeKey& node);

  const HomePaths paths_;
  const std::string agent_program_;
  const Post post_;
  std::mutex mutex_;
  std::map<uint64_t, core::NodeKey> nodes_;  // by holder pid
  ProcessWatch watch_;                       // last: its thread uses the above
};

}  // namespace hpctl
