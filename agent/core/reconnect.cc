// SPDX-License-Identifier: Apache-2.0
#include "agent/core/reconnect.h"

#include <algorithm>

namespace hpctl::agent {

int64_t Backoff::next(Rng& rng) {
  const int64_t pause = pause_ms_;
  pause_ms_ = std::min(kLongestMs, pause_ms_ * 2);
  return pause - static_cast<int64_t>(rng.below(static_cast<uint64_t>(pause / 2) + 1));
}

void OrphanWatch::allows(int64_t timeout_ms) {
  if (!was_welcomed_) timeout_ms_ = timeout_ms;
}

void OrphanWatch::welcomed(int64_t timeout_ms) {
  present_ = true;
  was_welcomed_ = true;
  if (timeout_ms > 0) timeout_ms_ = timeout_ms;
}

void OrphanWatch::lost(int64_t now_ms) {
  if (!present_) return;  // still the same absence
  present_ = false;
  absent_since_ms_ = now_ms;
  next_start_ms_ = 0;
}

bool OrphanWatch::start_controller_now(int64_t now_ms) {
  if (present_ || now_ms < absent_since_ms_ + plan_.after_ms || now_ms < next_start_ms_) {
    return false;
  }
  next_start_ms_ = now_ms + plan_.every_ms;
  return true;
}

bool OrphanWatch::expired(int64_t now_ms) const { return now_ms >= expires_at_ms(); }

int64_t OrphanWatch::next_deadline_ms() const {
  if (present_) return INT64_MAX;
  const int64_t start = std::max(absent_since_ms_ + plan_.after_ms, next_start_ms_);
  return std::min(start, expiry_ms());
}

}  // namespace hpctl::agent
