// SPDX-License-Identifier: Apache-2.0
// Reading a rank's log as it grows. The agent appends to rank-R.log and renames it to .1, .2 when
// it is full (agent/holder/rank_log.h); a reader holds the file open and moves on when the name
// leads to another file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/base/fd.h"

namespace hpctl {

class LogFile {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  // The last `count` whole lines, rotated files included; all of them if count is 0. read_new()
  // returns later lines. Call first, or not at all to read from the beginning.
  std::vector<std::string> read_last(size_t count);
  // Whole lines that were added since; at most a few MiB per call. A last line without an end stays
  // until it has one, or until `at_end`.
  std::vector<std::string> read_new(bool at_end = false);

 private:
  bool open();
  bool replaced() const;
  // False when there was nothing to read.
  bool read_available(std::vector<std::string>& lines);

  std::string path_;
  UniqueFd file_;
  std::string partial_;  // a line whose end has not been read
};

}  // namespace hpctl
