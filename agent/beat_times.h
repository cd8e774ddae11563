// SPDX-License-Identifier: Apache-2.0
// When the next heartbeat is due: as often as Welcome said, or, of a job of many nodes, as the
// controller has said since (controller/core/beats.h); sooner where there is news.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/rng.h"

namespace hpctl::agent {

class BeatTimes {
 public:
  // By Welcome; 0 = it does not say. The first is due at once.
  void welcomed(int64_t interval_ms, int64_t now_ms) {
    if (interval_ms > 0) often_ms_ = interval_ms;
    every_ms_ = often_ms_;
    due_ms_ = now_ms;
  }
  // All agents get a longer interval at the same moment, and must not send their heartbeats at
  // once.
  void told(int64_t interval_ms, Rng& rng, int64_t now_ms) {
    if (interval_ms <= 0) return;
    const bool is_seldomer = interval_ms > every_ms_;
    due_ms_ = now_ms;
    if (is_seldomer) {
      due_ms_ += static_cast<int64_t>(rng.below(static_cast<uint64_t>(interval_ms)));
    }
    every_ms_ = interval_ms;
  }
  // The content of a heartbeat, or a message that leaves with it, has changed.
  void soon(int64_t now_ms) { due_ms_ = std::min(due_ms_, now_ms + often_ms_); }
  void at_once() { due_ms_ = 0; }
  void sent(int64_t now_ms) { due_ms_ = now_ms + every_ms_; }

  int64_t due_ms() const { return due_ms_; }
  // Of Welcome; progress pages are read as often.
  int64_t often_ms() const { return often_ms_; }

 private:
  static constexpr int64_t kDefaultMs = 500;
  int64_t often_ms_ = kDefaultMs;
  int64_t every_ms_ = kDefaultMs;
  int64_t due_ms_ = 0;
};

}  // namespace hpctl::agent
