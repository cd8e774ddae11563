// SPDX-License-Identifier: Apache-2.0
// The local backend: a virtual node is one holder process on this machine, in a session of its own,
// so that it outlives the controller. Which process is the node is decided by the node's lock file,
// never by who started it; of two holders racing for the lock one ends at once. A holder carries
// the action that launched it, so that a launch done again after a restart of the controller is
// told from a new one: the first acknowledges the holder it finds, the second replaces it, because
// the core launches a node only after it has given up the former life, which may hang.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "common/base/paths.h"
#include "controller/core/types.h"
#include "controller/process_watch.h"

namespace hpctl {

class LocalScheduler {
 public:
  // A holder that was watched has ended. Called on a thread of the watch; must not block for long.
  using HolderEnded =
      std::function<void(const core::NodeKey& node, uint64_t pid, const std::string& cause)>;

  LocalScheduler(const HomePaths& paths, std::string agent_program, HolderEnded ended);

  // NodeLaunched, or ActionFailed. A holder of an earlier launch is ended first, without a word to
  // HolderEnded. Starts a program and may wait for seconds: not on the owner thread.
  core::EventBody launch(ActionId id, const core::LaunchNode& action);

  // Watches the holder that holds the node's lock; 0 when there is none.
  uint64_t watch_present_holder(const core::NodeKey& node);
  // Any thread. A holder that has registered.
  void watch(const core::NodeKey& node, uint64_t pid);
  void stop() { watch_.stop(); }

  // Pid in the node's lock file when that lock is held by a living process; else 0.
  uint64_t present_holder(const core::NodeKey& node) const;

 private:
  // Ok also when there is nothing to end.
  Outcome end_former_life(uint64_t pid, const core::NodeKey& node);

  const HomePaths paths_;
  const std::string agent_program_;
  const HolderEnded ended_;
  std::mutex mutex_;
  std::map<uint64_t, core::NodeKey> nodes_;  // by holder pid
  ProcessWatch watch_;                       // last: its thread uses the above
};

}  // namespace hpctl
