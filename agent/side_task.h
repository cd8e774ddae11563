// SPDX-License-Identifier: Apache-2.0
// SideTask: a thread for calls that may block as long as a file server does, beside a loop that has
// a liveness deadline. One task at a time.
//
// A thread that hangs in the kernel cannot be ended, and it is never detached, because it would use
// objects that its owner has destroyed. The owner's process abandons it by _exit().
//
// Own thread only, except the task itself.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace hpctl::agent {

class SideTask {
 public:
  // `wake_fd` is an eventfd that outlives this. It rings when a task has ended.
  explicit SideTask(int wake_fd) : wake_fd_(wake_fd) {}
  SideTask(const SideTask&) = delete;
  SideTask& operator=(const SideTask&) = delete;
  // Waits for a task that runs.
  ~SideTask();

  // Precondition: !is_busy().
  void start(std::function<void()> task);
  // From start() until take_end() has said that the task has ended.
  bool is_busy() const { return thread_.joinable(); }
  // True once for each task.
  bool take_end();

 private:
  const int wake_fd_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

}  // namespace hpctl::agent
