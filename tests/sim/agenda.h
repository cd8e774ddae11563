// SPDX-License-Identifier: Apache-2.0
// Simulated time: tasks in order of due time, and of scheduling where times are equal.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace hpctl::sim {

class Agenda {
 public:
  int64_t now() const { return now_; }
  void after(int64_t delay_ms, std::function<void()> task) {
    queue_.push({now_ + delay_ms, next_++, std::move(task)});
  }
  // Runs the next task if it is due by `until_ms`; otherwise moves time there and returns false.
  bool run_next(int64_t until_ms) {
    if (queue_.empty() || queue_.top().due_ms > until_ms) {
      now_ = until_ms;
      return false;
    }
    // The task is moved out of a queue that only offers const access; the entry is popped at once.
    auto task = std::move(const_cast<Entry&>(queue_.top()).task);
    now_ = queue_.top().due_ms;
    queue_.pop();
    task();
    return true;
  }

 private:
  struct Entry {
    int64_t due_ms;
    uint64_t order;
    std::function<void()> task;
    bool operator<(const Entry& other) const {
      return std::pair(due_ms, order) > std::pair(other.due_ms, other.order);
    }
  };
  std::priority_queue<Entry> queue_;
  int64_t now_ = 0;
  uint64_t next_ = 0;
};

}  // namespace hpctl::sim
