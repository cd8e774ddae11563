// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/storage_wait.h"

#include <algorithm>

#include "common/base/log.h"
#include "trainer/comm/communicator.h"
#include "trainer/process/stop_request.h"

namespace hpctl {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{200};
constexpr milliseconds kLongestPause{10'000};
constexpr milliseconds kLook{100};  // for a stop request, of which a signal handler tells
// Between two looks at an attempt. A thread that were woken for each would cost each step a switch.
constexpr milliseconds kLooksOfAnAttempt = StorageWait::kSlowAttempt / 4;

// After the n-th failure in a row.
milliseconds pause_after(uint64_t failures) {
  return std::min(kLongestPause, kFirstPause * (int64_t{1} << std::min<uint64_t>(failures - 1, 6)));
}

}  // namespace

StorageWait::StorageWait(const Workload& workload, Progress& progress, milliseconds slow_attempt)
    : limit_(std::min(milliseconds(workload.storage_limit_ms), kLongestInPlace)),
      slow_attempt_(slow_attempt),
      progress_(progress),
      thread_([this] { watch(); }) {}

StorageWait::~StorageWait() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StorageWait::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
}

void StorageWait::begin_attempt() {
  const std::lock_guard lock(mutex_);
  attempt_since_ = Clock::now();
}

void StorageWait::end_attempt() {
  {
    const std::lock_guard lock(mutex_);
    attempt_since_.reset();
    if (!is_slow_) return;
    is_slow_ = false;
    progress_.waits_for_storage(failures_);
  }
  log_info("storage has answered");
}

// With the lock.
bool StorageWait::is_slow_now() const {
  if (!attempt_since_ || progress_.page().step.load() == 0) return false;
  const auto lasts = Clock::now() - *attempt_since_;
  return lasts >= slow_attempt_ && lasts < limit_;
}

void StorageWait::watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    changed_.wait_for(lock, std::min(slow_attempt_, kLooksOfAnAttempt));
    if (is_slow_now() == is_slow_) continue;
    is_slow_ = !is_slow_;
    progress_.waits_for_storage(is_slow_ ? failures_ + 1 : 0);
    const char* const words =
        is_slow_ ? "storage does not answer; the step waits for it"
                 : "storage has not answered for so long that this rank counts as hung";
    lock.unlock();
    log_warning(words);
    lock.lock();
  }
}

// An error ends the wait.
Outcome StorageWait::pause(const Error& error) {
  if (progress_.page().step.load() == 0) return error;
  const Clock::time_point now = Clock::now();
  if (++failures_ == 1) {
    since_ = now;
    log_warning(error.message + "; the step waits for it");
  }
  progress_.waits_for_storage(failures_);
  if (now - since_ >= limit_) return error;
  const Clock::time_point next = now + pause_after(failures_);
  std::unique_lock lock(mutex_);
  while (!aborted_ && !is_stop_requested() && Clock::now() < next) {
    changed_.wait_for(lock, kLook);
  }
  if (aborted_)
    return Error{kPeerLost, "told to end while it waited for storage: " + error.message};
  return is_stop_requested() ? Outcome(error) : Outcome(Ok{});
}

void StorageWait::end() {
  if (failures_ == 0) return;
  failures_ = 0;
  progress_.waits_for_storage(0);
  log_info("storage answers again; the step goes on");
}

}  // namespace hpctl
