// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/log_watch.h"

#include <algorithm>
#include <ctime>

namespace hpctl {
namespace {

// Not the time of day: a thread that waits for a processor has not searched.
int64_t thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void LogWatch::read(std::string_view bytes, int64_t now_ms) {
  if (now_ms - second_began_ms_ >= 1'000) {
    second_began_ms_ = now_ms;
    read_bytes_ = 0;
    searched_ns_ = 0;
  }
  read_bytes_ += bytes.size();
  const bool is_spent = read_bytes_ > kWatchedBytesPerSecond || searched_ns_ > kWatchedNsPerSecond;
  if (is_spent || !search(bytes, now_ms)) skip(now_ms);
}

bool LogWatch::search(std::string_view bytes, int64_t now_ms) {
  int64_t begun_ns = thread_cpu_ns();
  size_t searched = 0;  // since then
  for (;;) {
    const size_t end = bytes.find_first_of("\n\r");
    const std::string_view part = bytes.substr(0, end);
    line_.append(part.substr(0, kWatchedLineBytes - line_.size()));
    if (end == std::string_view::npos) break;
    searched += line_.size() + 1;
    end_line(now_ms);
    bytes.remove_prefix(end + 1);
    if (searched < kWatchedLineBytes) continue;  // to ask for the time costs some, too
    const int64_t now_ns = thread_cpu_ns();
    searched_ns_ += now_ns - begun_ns;
    if (searched_ns_ > kWatchedNsPerSecond) return false;
    begun_ns = now_ns;
    searched = 0;
  }
  searched_ns_ += thread_cpu_ns() - begun_ns;
  return true;
}

void LogWatch::end_line(int64_t now_ms) {
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (!has_just_matched(i, now_ms) && patterns_[i].is_in(line_)) matched(i, now_ms);
  }
  line_.clear();
}

void LogWatch::skip(int64_t now_ms) {
  line_.clear();
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (!has_just_matched(i, now_ms)) matched(i, now_ms);
  }
}

bool LogWatch::has_just_matched(size_t pattern, int64_t now_ms) const {
  return matched_ms_[pattern] != 0 && now_ms - matched_ms_[pattern] < kWatchPauseMs;
}

void LogWatch::matched(size_t pattern, int64_t now_ms) {
  matched_ms_[pattern] = now_ms;
  has_news_ = true;
}

}  // namespace hpctl
