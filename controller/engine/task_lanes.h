// SPDX-License-Identifier: Apache-2.0
// Threads for tasks that may block without end: files on a shared file system that is down, child
// programs. A task belongs to a lane, for example a directory; the tasks of one lane run one after
// the other, the tasks of different lanes side by side. So a task that hangs blocks one thread and
// its own lane, and no other lane.
//
// A thread that hangs in the kernel cannot be ended, and is never detached, because it would use
// objects that its owner has destroyed. So stop() waits for a while and then names the lanes that
// hang; a caller that gets such names leaves the process by leave_with_hung_lanes(), which ends
// those threads too.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hpctl {

class TaskLanes {
 public:
  using Task = std::function<void()>;
  enum class AtStop { kDropped, kDone };  // what waits

  // At most `threads` lanes run at a time, more wait for their turn. In a lane wait at most
  // `waiting` tasks: what is repeated until it is done, of which the newest count.
  TaskLanes(size_t threads, size_t waiting) : max_threads_(threads), max_waiting_(waiting) {}
  // Waits for what runs, however long that is: see above.
  ~TaskLanes();
  TaskLanes(const TaskLanes&) = delete;
  TaskLanes& operator=(const TaskLanes&) = delete;

  // Any thread. In a full lane the oldest that waits is dropped. After stop() the task is.
  void post(const std::string& lane, Task task);
  // Waits at most `patience` for what runs, and what waits where it is not dropped. The lanes that
  // still run then: none = all threads have ended.
  std::vector<std::string> stop(std::chrono::milliseconds patience, AtStop what_waits);

 private:
  struct Lane {
    std::deque<Task> waiting;
    bool running = false;
  };

  void run();
  void wake_one();  // under mutex_

  const size_t max_threads_;
  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable ended_;
  std::map<std::string, Lane> lanes_;  // that have a task
  std::deque<std::string> ready_;      // of these, that no thread has taken
  size_t idle_ = 0;                    // threads that take the next of them
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Says which lanes hang and ends the process at once, without destructors. The caller has closed
// what must be closed.
[[noreturn]] void leave_with_hung_lanes(const std::vector<std::string>& lanes, int exit_code);

}  // namespace hpctl
