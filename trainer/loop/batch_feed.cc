// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/batch_feed.h"

#include <string>
#include <utility>

#include "trainer/state/may_pass.h"

namespace hpctl {

BatchFeed::BatchFeed(SampleReader& reader, Staging* staging)
    : reader_(reader), staging_(staging), thread_([this] { serve(); }) {}

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
  Batches batches =
      read_micro_batches(reader_, sample_numbers(order.samples), order.micro, order.count);
  if (!batches.ok()) return may_pass(batches.error());  // never damage of a state or checkpoint
  if (staging_ != nullptr) HP_TRY(stage(*batches));
  return batches;
}

// An exception would end the process from the feed's thread.
Outcome BatchFeed::stage(std::vector<MicroBatch>& batches) const {
  try {
    for (MicroBatch& batch : batches) {
      batch.tokens = staging_(batch.tokens);
      batch.targets = staging_(batch.targets);
      if (batch.documents.empty()) continue;
      batch.documents.positions = staging_(batch.documents.positions);
      batch.documents.borders = staging_(batch.documents.borders);
    }
  } catch (const c10::Error& error) {
    return Error{ErrorCode::kInternal,
                 std::string("no page-locked host memory for a step's batches: ") +
                     error.what_without_backtrace() +
                     "; a node with more memory, or a smaller batch.global"};
  }
  return Ok{};
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
