// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/log_watch.h"

#include <algorithm>

namespace hpctl {

void LogWatch::read(std::string_view bytes, int64_t now_ms) {
  if (now_ms - second_began_ms_ >= 1'000) {
    second_began_ms_ = now_ms;
    read_bytes_ = 0;
  }
  read_bytes_ += bytes.size();
  if (read_bytes_ > kWatchedBytesPerSecond) {
    line_.clear();
    for (size_t i = 0; i < patterns_.size(); ++i) matched(i, now_ms);
    return;
  }
  for (;;) {
    const size_t end = bytes.find_first_of("\n\r");
    const std::string_view part = bytes.substr(0, end);
    line_.append(part.substr(0, kWatchedLineBytes - line_.size()));
    if (end == std::string_view::npos) return;
    end_line(now_ms);
    bytes.remove_prefix(end + 1);
  }
}

void LogWatch::end_line(int64_t now_ms) {
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const bool just_matched = matched_ms_[i] != 0 && now_ms - matched_ms_[i] < kWatchPauseMs;
    if (!just_matched && patterns_[i].is_in(line_)) matched(i, now_ms);
  }
  line_.clear();
}

void LogWatch::matched(size_t pattern, int64_t now_ms) {
  matched_ms_[pattern] = now_ms;
  has_news_ = true;
}

}  // namespace hpctl
