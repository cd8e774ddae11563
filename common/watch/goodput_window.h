// SPDX-License-Identifier: Apache-2.0
// A job's goodput of late. That of all its life hardly moves after a week; what tells is the share
// of training in the last hours, by samples of the two totals, a bounded number of them. Counted in
// the job's own time since its first step, without what the scheduler had stopped it for. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "common/job/time_account.h"

namespace hpctl {

class GoodputWindow {
 public:
  static constexpr int64_t kWindowMs = 6 * 3'600'000;
  static constexpr int64_t kLeastMs = 3'600'000;  // of less nothing is said

  struct Share {
    double trained = 0;  // 0..1
    int64_t of_ms = 0;   // kLeastMs to about kWindowMs
  };

  // For a job younger than the window: since its first step, from the first call on. For an older
  // one: since the first call, at most the window.
  std::optional<Share> look(const TimeAccount& account) {
    const Totals now{account.since_first_step_ms() - account.spent.suspended_ms,
                     account.training_ms};
    if (!samples_.empty() && now.lived_ms < samples_.back().lived_ms) samples_.clear();
    if (samples_.empty() && now.lived_ms <= kWindowMs) samples_.push_back({0, 0});
    if (samples_.empty() || now.lived_ms - samples_.back().lived_ms >= kSpacingMs) {
      samples_.push_back(now);
    }
    while (samples_.size() > 1 && now.lived_ms - samples_[1].lived_ms >= kWindowMs) {
      samples_.pop_front();
    }
    const int64_t of_ms = now.lived_ms - samples_.front().lived_ms;
    if (of_ms < kLeastMs) return std::nullopt;
    const auto trained_ms = static_cast<double>(now.trained_ms - samples_.front().trained_ms);
    return Share{trained_ms / static_cast<double>(of_ms), of_ms};
  }

 private:
  static constexpr int64_t kSpacingMs = 5 * 60'000;
  struct Totals {
    int64_t lived_ms;
    int64_t trained_ms;
  };
  std::deque<Totals> samples_;  // oldest first
};

}  // namespace hpctl
