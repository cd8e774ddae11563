// SPDX-License-Identifier: Apache-2.0
// RankLog: a worker's output, from its pipe to the log writer (common/process/log_writer.h).
//
// The holder reads the pipe whenever it is readable and hands the data on. If the writer does not
// take data, they are dropped and counted, never held back: a log must not stop training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/holder/log_watch.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/process/log_writer.h"

namespace hpctl {

inline constexpr uint64_t kRankLogBytes = 64ULL << 20;  // of one file

class RankLog {
 public:
  // Appends to `path`. `writer` must outlive this log.
  RankLog(LogWriter& writer, std::string path, uint64_t max_bytes = kRankLogBytes);
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;
  ~RankLog();

  // The writing end for the worker's descriptors 1 and 2; the caller closes it after the spawn.
  Result<UniqueFd> make_pipe();
  int read_end() const { return pipe_.get(); }  // -1 after close_pipe()
  void close_pipe() { pipe_.reset(); }
  // Later output belongs to `path`, after all earlier output.
  void go_on_in(std::string path);
  // Output from now on is searched for these; none = it is not searched.
  void watch_for(std::vector<LinePattern> patterns);
  LogWatch* watch() { return watch_ ? &*watch_ : nullptr; }

  // Appends a line of our own.
  void line(std::string_view text);
  // Moves what the pipe holds now to the writer. False at end of file.
  bool drain();
  // The last non-empty line of output, at most 300 bytes; "" when there was none.
  std::string last_line() const;
  // Why a program failed: the exception of its last Python traceback, else last_line().
  std::string last_words() const;

 private:
  void append(std::string_view bytes);
  void send(std::string_view bytes);

  LogWriter& writer_;
  const SystemClock clock_{};
  std::optional<LogWatch> watch_;
  std::string path_;
  const uint64_t max_bytes_;
  UniqueFd pipe_;
  uint64_t lost_bytes_ = 0;
  std::string tail_;  // the end of the output, at least kTailBytes of it, for last_words()
};

}  // namespace hpctl
