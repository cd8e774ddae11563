// SPDX-License-Identifier: Apache-2.0
// Reading samples and writing the ledger in the middle of a step, while their storage fails. The
// rank tries again with growing pauses and says so on its progress page, so that the controller
// takes it neither for hung nor for faulty. The other ranks wait in their next collective.
//
// An abort or a stop request ends the wait. So does kLongestInPlace, well before the collectives of
// the other ranks time out: the worker then ends with kExitStorage, and the controller waits for
// the rest of limits.storage (decision 0109).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "common/base/result.h"
#include "common/base/workload.h"
#include "trainer/process/progress.h"

namespace hpctl {

class StorageWait {
 public:
  static constexpr std::chrono::milliseconds kLongestInPlace{300'000};

  // Both outlive it.
  StorageWait(const Workload& workload, Progress& progress);

  // The outcome of `attempt`, which is called until it fails otherwise than with kStorage, or
  // succeeds. In the first step of a generation it is called once: nothing waits for a worker that
  // has not completed a step. kPeerLost after abort().
  template <typename Attempt>
  auto until_done(Attempt attempt) -> decltype(attempt()) {
    for (;;) {
      auto outcome = attempt();
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

  Outcome pause(const Error& error);
  void end();

  const std::chrono::milliseconds limit_;
  Progress& progress_;
  uint64_t failures_ = 0;  // in a row
  Clock::time_point since_;
  std::mutex mutex_;  // of aborted_
  std::condition_variable changed_;
  bool aborted_ = false;
};

}  // namespace hpctl
