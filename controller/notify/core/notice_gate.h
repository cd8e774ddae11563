// SPDX-License-Identifier: Apache-2.0
// Lets at most one notification a minute of each kind through: the first at once; then the newest
// of those that come within the minute, when it is over, with their number. So a job that restarts
// every few seconds, or a rack whose nodes are all taken out, sends few messages. The end of a job
// passes always, and takes held-back ones along. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/notify/core/notice.h"

namespace hpctl {

inline constexpr int64_t kNoticeQuietMs = 60'000;

// Of one job.
class NoticeGate {
 public:
  // The notifications to send now, in order.
  std::vector<Notice> pass(Notice notice, int64_t now_ms) {
    const bool is_end = notice.kind == NoticeKind::kFailure || notice.kind == NoticeKind::kFinished;
    std::vector<Notice> passed = is_end ? release(INT64_MAX) : release(now_ms);
    if (is_end) {
      passed.push_back(std::move(notice));
      return passed;
    }
    const auto [entry, is_first] = entries_.try_emplace({notice.kind, notice.finding});
    Entry& known = entry->second;
    if (is_first || now_ms - known.sent_ms >= kNoticeQuietMs) {
      known.sent_ms = now_ms;
      passed.push_back(std::move(notice));
      return passed;
    }
    notice.repeats = known.held ? known.held->repeats + 1 : 0;
    known.held = std::move(notice);
    return passed;
  }

  // Notifications that were held back for long enough.
  std::vector<Notice> release(int64_t now_ms) {
    std::vector<Notice> released;
    for (auto& [key, entry] : entries_) {
      if (!entry.held || now_ms < entry.sent_ms + kNoticeQuietMs) continue;
      released.push_back(std::move(*entry.held));
      entry.held.reset();
      entry.sent_ms = now_ms;
    }
    return released;
  }

 private:
  struct Entry {
    int64_t sent_ms = 0;
    std::optional<Notice> held;
  };
  std::map<std::pair<NoticeKind, std::string>, Entry> entries_;
};

}  // namespace hpctl
