// SPDX-License-Identifier: Apache-2.0
// A job's metrics.jsonl, read as it grows. Each call reads what has been added since the last one,
// at most kMostBytesPerRead of it and for at most kReadTime, so a long file takes several calls.
// A last line without an end stays until it has one. A file that was replaced or cut short is read
// again from its beginning. Blocks while the file system does not answer; one thread at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "controller/page/metrics_series.h"

namespace hpctl {

class MetricsFile {
 public:
  static constexpr uint64_t kMostBytesPerRead = uint64_t{64} << 20;
  static constexpr std::chrono::milliseconds kReadTime{1'500};

  explicit MetricsFile(std::string path) : path_(std::move(path)) {}

  // A file that is not there is one without lines. kInvalidArgument: it is no regular file.
  Outcome read_on();

  const MetricsSeries& series() const { return series_; }
  uint64_t read_bytes() const { return offset_; }
  uint64_t size() const { return size_; }
  // Nothing but half a line is left.
  bool is_read() const { return is_read_; }

 private:
  Outcome read_from(int fd);
  // Bytes of whole lines, whose end is the last one in `text`.
  size_t take_lines(const std::string& text);

  const std::string path_;
  MetricsSeries series_;
  ino_t inode_ = 0;
  uint64_t offset_ = 0;  // behind the last whole line
  uint64_t size_ = 0;
  bool is_read_ = false;
};

}  // namespace hpctl
