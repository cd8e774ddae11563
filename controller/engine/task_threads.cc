// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/task_threads.h"

namespace hpctl {

TaskThreads::TaskThreads(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

TaskThreads::~TaskThreads() { stop(); }

void TaskThreads::post(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  arrived_.notify_one();
}

void TaskThreads::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void TaskThreads::run() {
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }
}

}  // namespace hpctl
