// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/task_lanes.h"

#include <unistd.h>

#include <utility>

#include "common/base/log.h"

namespace hpctl {

TaskLanes::~TaskLanes() {
  stop(std::chrono::milliseconds(0), AtStop::kDropped);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void TaskLanes::post(const std::string& lane, Task task) {
  Task dropped;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) return;
  Lane& mine = lanes_[lane];
  if (mine.waiting.size() >= max_waiting_) {
    dropped = std::move(mine.waiting.front());
    mine.waiting.pop_front();
  }
  mine.waiting.push_back(std::move(task));
  if (mine.running || mine.waiting.size() > 1) return;  // its turn comes, or it is ready already
  ready_.push_back(lane);
  wake_one();
}

void TaskLanes::wake_one() {
  if (ready_.size() > idle_ && threads_.size() < max_threads_) {
    threads_.emplace_back([this] { run(); });
    ++idle_;
  } else {
    arrived_.notify_one();
  }
}

void TaskLanes::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [this] { return stopping_ || !ready_.empty(); });
    if (ready_.empty()) return;
    --idle_;
    const std::string name = std::move(ready_.front());
    ready_.pop_front();
    Lane& lane = lanes_.at(name);
    lane.running = true;
    {
      const Task task = std::move(lane.waiting.front());
      lane.waiting.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
    ++idle_;
    lane.running = false;
    if (lane.waiting.empty()) {
      lanes_.erase(name);
      if (stopping_) ended_.notify_all();
    } else {
      ready_.push_back(name);
      wake_one();
    }
  }
}

std::vector<std::string> TaskLanes::stop(std::chrono::milliseconds patience, AtStop what_waits) {
  std::vector<std::string> hung;
  std::map<std::string, Lane> dropped;  // destroyed without the lock
  {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    if (what_waits == AtStop::kDropped) {
      ready_.clear();
      for (auto it = lanes_.begin(); it != lanes_.end();) {
        std::swap(dropped[it->first].waiting, it->second.waiting);
        it = it->second.running ? std::next(it) : lanes_.erase(it);
      }
    }
    arrived_.notify_all();
    ended_.wait_for(lock, patience, [this] { return lanes_.empty(); });
    for (const auto& [name, lane] : lanes_) hung.push_back(name);
  }
  if (!hung.empty()) return hung;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  return hung;
}

void leave_with_hung_lanes(const std::vector<std::string>& lanes, int exit_code) {
  for (const std::string& lane : lanes) {
    log_error("ending with " + std::to_string(exit_code) + " without waiting for " + lane +
              ", which does not answer");
  }
  ::_exit(exit_code);
}

}  // namespace hpctl
