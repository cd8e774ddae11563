// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/batch_feed.h"

#include <utility>

namespace hpctl {

BatchFeed::BatchFeed(SampleReader& reader) : reader_(reader), thread_([this] { serve(); }) {}

BatchFeed::~BatchFeed() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<std::vector<MicroBatch>> BatchFeed::take(const BatchOrder& order) {
  {
    std::unique_lock lock(mutex_);
    if (ahead_ == order) {
      changed_.wait(lock, [this] { return ready_.has_value(); });
      ahead_.reset();
      return *std::exchange(ready_, std::nullopt);
    }
    ahead_.reset();
    ready_.reset();
    changed_.wait(lock, [this] { return !reading_; });
  }
  return read(order);
}

void BatchFeed::read_ahead(const BatchOrder& order) {
  {
    const std::lock_guard lock(mutex_);
    if (ahead_ == order) return;
    ahead_ = order;
    ready_.reset();
  }
  changed_.notify_all();
}

BatchFeed::Batches BatchFeed::read(const BatchOrder& order) {
  return read_micro_batches(reader_, sample_numbers(order.samples), order.micro, order.count);
}

void BatchFeed::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || (ahead_ && !ready_); });
    if (ending_) return;
    const BatchOrder order = *ahead_;
    reading_ = true;
    lock.unlock();
    Batches batches = read(order);
    lock.lock();
    reading_ = false;
    if (ahead_ == order) ready_.emplace(std::move(batches));
    changed_.notify_all();
  }
}

}  // namespace hpctl
