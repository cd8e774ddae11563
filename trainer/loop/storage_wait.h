// SPDX-License-Identifier: Apache-2.0
// Reading samples and writing the ledger in the middle of a step, while their storage fails. The
// rank tries again with growing pauses and says so on its progress page, so that the controller
// takes it neither for hung nor for faulty. The other ranks wait in their next collective.
//
// Storage need not even fail: its server may not answer, and then the rank waits in the kernel. A
// thread beside it says so on the page after kSlowAttempt, and no longer than kLongestInPlace. Then
// the rank counts as hung.
//
// An abort or a stop request ends the wait. So does kLongestInPlace, well before the collectives of
// the other ranks time out: the worker then ends with kExitStorage, and the controller waits for
// the rest of limits.storage (decision 0109).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "common/base/result.h"
#include "common/worker/workload.h"
#include "trainer/process/progress.h"

namespace hpctl {

class StorageWait {
 public:
  static constexpr std::chrono::milliseconds kLongestInPlace{300'000};

  static constexpr std::chrono::milliseconds kSlowAttempt{2'000};

  // Both outlive it.
  StorageWait(const Workload& workload, Progress& progress,
              std::chrono::milliseconds slow_attempt = kSlowAttempt);
  StorageWait(const StorageWait&) = delete;
  StorageWait& operator=(const StorageWait&) = delete;
  ~StorageWait();

  // The outcome of `attempt`, which is called until it fails otherwise than with kStorage, or
  // succeeds. In the first step of a generation it is called once: nothing waits for a worker that
  // has not completed a step. kPeerLost after abort().
  template <typename Attempt>
  auto until_done(Attempt attempt) -> decltype(attempt()) {
    for (;;) {
      auto outcome = run_watched(attempt);
      if (outcome.ok() || outcome.error().code != ErrorCode::kStorage) {
        end();
        return outcome;
      }
      HP_TRY(pause(outcome.error()));
    }
  }

  // Any thread.
  void abort();

 private:
  using Clock = std::chrono::steady_clock;

  // While it lives, the thread watches an attempt.
  class AttemptScope {
   public:
    explicit AttemptScope(StorageWait& wait) : wait_(wait) { wait_.begin_attempt(); }
    AttemptScope(const AttemptScope&) = delete;
    AttemptScope& operator=(const AttemptScope&) = delete;
    ~AttemptScope() { wait_.end_attempt(); }

   private:
    StorageWait& wait_;
  };

  template <typename Attempt>
  auto run_watched(Attempt& attempt) -> decltype(attempt()) {
    const AttemptScope scope(*this);
    return attempt();
  }
  void begin_attempt();
  void end_attempt();
  void watch();
  bool is_slow_now() const;

  Outcome pause(const Error& error);
  void end();

  const std::chrono::milliseconds limit_;
  const std::chrono::milliseconds slow_attempt_;
  Progress& progress_;
  uint64_t failures_ = 0;  // in a row
  Clock::time_point since_;
  std::mutex mutex_;  // of what is below
  std::condition_variable changed_;
  bool aborted_ = false;
  bool is_over_ = false;
  std::optional<Clock::time_point> attempt_since_;  // nullopt: no attempt is under way
  bool is_slow_ = false;                            // the page says that the attempt waits
  std::thread thread_;                              // last: it uses the rest
};

}  // namespace hpctl
