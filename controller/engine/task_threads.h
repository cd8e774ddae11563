// SPDX-License-Identifier: Apache-2.0
// A few threads for what may block (files on shared disks, starting programs), so that the owner
// thread never does. Tasks begin in order; the queue is bounded by the number of open actions.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hpctl {

class TaskThreads {
 public:
  explicit TaskThreads(int threads);
  ~TaskThreads();  // as stop()
  TaskThreads(const TaskThreads&) = delete;
  TaskThreads& operator=(const TaskThreads&) = delete;

  // Any thread. After stop() the task is dropped: its action stays in the outbox.
  void post(std::function<void()> task);
  // Ends the tasks that run, drops the others.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hpctl
