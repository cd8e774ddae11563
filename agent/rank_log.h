// SPDX-License-Identifier: Apache-2.0
// RankLog: a worker's output, from its pipe to its log file, with rotation.
//
// The holder reads the pipe whenever it is readable and appends what it got. What cannot be written
// (disk full, directory gone) is dropped and counted, never held back: a log must not stop
// training. rank-R.log is renamed to .1, .2 when it reaches its limit; the oldest goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

inline constexpr uint64_t kRankLogBytes = 64ULL << 20;  // of one file
inline constexpr int kRankLogFiles = 3;                 // the current one included

class RankLog {
 public:
  // Opens or creates `path` for appending, with its directory. A log that cannot be opened is
  // reported once on the holder's own log and discards.
  explicit RankLog(std::string path, uint64_t max_bytes = kRankLogBytes);

  // The writing end for the worker's descriptors 1 and 2; the caller closes it after the spawn.
  Result<UniqueFd> make_pipe();
  int read_end() const { return pipe_.get(); }  // -1 after close_pipe()
  void close_pipe() { pipe_.reset(); }
  // What comes from now on belongs to `path`, as the constructor has it.
  void go_on_in(std::string path);

  // Appends a line of our own.
  void line(std::string_view text);
  // Moves what the pipe holds now to the file. False at end of file.
  bool drain();
  // The last non-empty line of output, at most 300 bytes; "" when there was none.
  std::string last_line() const;

 private:
  void begin();
  void open();
  void append(std::string_view bytes);
  void rotate();

  std::string path_;
  const uint64_t max_bytes_;
  UniqueFd file_;
  UniqueFd pipe_;
  uint64_t size_ = 0;
  uint64_t dropped_bytes_ = 0;
  std::string tail_;  // the end of the output, for last_line()
};

}  // namespace hpctl
