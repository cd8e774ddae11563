// SPDX-License-Identifier: Apache-2.0
// LogWatch: when a rank last printed a line that matches a pattern of recovery.hang_rules. It reads
// what passes through the holder on its way to the log writer, never a file.
//
// The holder's only thread must show life, so the work is bounded: the beginning of each line, a
// pattern that has just matched is not searched again, and so many bytes and so much processor time
// in a second. Output beyond that counts as a match, since nothing is known of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/line_pattern.h"

namespace hpctl {

inline constexpr size_t kWatchedLineBytes = 4096;
inline constexpr size_t kWatchedBytesPerSecond = size_t{4} << 20;
// Of a pattern with many states RE2 keeps no table, and searches some hundred times slower.
inline constexpr int64_t kWatchedNsPerSecond = 50'000'000;
inline constexpr int64_t kWatchPauseMs = 200;  // of a pattern, after a match

class LogWatch {
 public:
  explicit LogWatch(std::vector<LinePattern> patterns)
      : patterns_(std::move(patterns)), matched_ms_(patterns_.size(), 0) {}

  // A line ends with a newline, or with the carriage return of a progress bar.
  void read(std::string_view bytes, int64_t now_ms);

  // For each pattern: when a line last matched, in the clock of `now_ms`; 0 = none has.
  const std::vector<int64_t>& matched_ms() const { return matched_ms_; }
  // They differ from what was last taken, or nothing was taken yet.
  bool take_news() { return std::exchange(has_news_, false); }
  // The next reader knows nothing yet.
  void forget_taken() { has_news_ = true; }

 private:
  // False: there was no time to search all of it.
  bool search(std::string_view bytes, int64_t now_ms);
  void end_line(int64_t now_ms);
  void skip(int64_t now_ms);
  bool has_just_matched(size_t pattern, int64_t now_ms) const;
  void matched(size_t pattern, int64_t now_ms);

  const std::vector<LinePattern> patterns_;
  std::vector<int64_t> matched_ms_;
  bool has_news_ = true;
  std::string line_;  // the one that has not ended, at most kWatchedLineBytes of it
  int64_t second_began_ms_ = 0;
  size_t read_bytes_ = 0;    // within that second
  int64_t searched_ns_ = 0;  // likewise
};

}  // namespace hpctl
