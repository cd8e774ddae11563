// SPDX-License-Identifier: Apache-2.0
// RotatingLog: a log file with a limit. PATH is renamed to PATH.1, PATH.2 when it reaches its
// limit; the oldest goes. Bytes that cannot be written (disk full, directory gone) are dropped and
// counted, and the log says so when it goes on. A file that cannot be opened is tried again later.
//
// Every call may block for as long as the file system does. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/fd.h"

namespace hpctl {

inline constexpr int kLogFiles = 3;  // the current one included

class RotatingLog {
 public:
  // Opens or creates `path` for appending, with its directory. What that lies in is there, or the
  // output is dropped: a log never makes the directory of a job.
  explicit RotatingLog(std::string path);

  // `max_bytes`: limit of one file.
  void append(std::string_view bytes, uint64_t max_bytes);

 private:
  void open();
  void open_again();
  void rotate();
  bool write(std::string_view bytes);

  const std::string path_;
  const SystemClock clock_;
  UniqueFd file_;
  uint64_t size_ = 0;
  uint64_t dropped_bytes_ = 0;
  int64_t opened_at_ms_ = 0;  // the last attempt
};

}  // namespace hpctl
