// SPDX-License-Identifier: Apache-2.0
// The source of nodes: the controller's requests to the backend that starts agents, and the
// backend's own reports. One implementation per backend; the core knows none of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "common/base/result.h"
#include "controller/core/core.h"

namespace hpctl {

// The answer to a launch that could not be made. Storage that fails counts as no attempt, and
// neither does a directory that is not there, because its file system may be away.
inline core::ActionFailed launch_failed(ActionId id, const core::LaunchNode& action,
                                        const Error& error) {
  core::ActionFailed failed{id, action.job, action.node, error.message};
  failed.storage = error.code == ErrorCode::kStorage || error.code == ErrorCode::kNotFound ||
                   error.code == ErrorCode::kResourceExhausted;
  return failed;
}

class Scheduler {
 public:
  // Made on the owner thread from the state it will meet; nullopt = nothing to record.
  using MakeEvent = std::function<std::optional<core::EventBody>(const core::State& state)>;
  // Hands an event about a node of `job` to the owner thread. Any thread; may wait while the queue
  // is full.
  using Post = std::function<void(JobId job, MakeEvent make)>;

  virtual ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Once, before any other call, with the rows as they were loaded: nodes of an earlier
  // controller's time are found again, or posted as lost.
  virtual void resume(const core::State& state) = 0;

  // A desired state: repeating it after a crash does nothing more. NodeLaunched, or ActionFailed.
  // May wait for seconds: never on the owner thread. Calls may come from several threads at once.
  virtual core::EventBody launch(ActionId id, const core::LaunchNode& action) = 0;

  // The agent of the node registered; `holder_pid` is on the node's own machine. Owner thread: must
  // not block for long.
  virtual void registered(const core::NodeKey& node, uint64_t holder_pid) = 0;

  // JobRequeued, NodeReplacementRequested, or ActionFailed. As launch(). The core asks only where
  // its Backend says that the scheduler can.
  virtual core::EventBody requeue(ActionId id, const core::RequeueJob& action) {
    return core::ActionFailed{id, action.job, "", "this backend cannot requeue a job", true};
  }
  virtual core::EventBody replace(ActionId id, const core::ReplaceNode& action) {
    return core::ActionFailed{id, action.job, action.node, "this backend cannot replace a node",
                              true};
  }
  // Where it may suspend a job: whether it has, nullopt when that cannot be found out. As launch().
  virtual bool suspends() const { return false; }
  virtual std::optional<bool> is_suspended(JobId /*job*/) { return false; }
  // The verdict is durable and all nodes have ended: what is left of the job is ended with it. Last
  // call before stop(); may wait for seconds.
  virtual void complete(int /*exit_code*/) {}

  // Nothing is posted afterwards.
  virtual void stop() = 0;

 protected:
  Scheduler() = default;
};

}  // namespace hpctl
