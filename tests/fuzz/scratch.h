// SPDX-License-Identifier: Apache-2.0
// Where a harness puts its input when the parser reads a file or a directory.
#pragma once

#include <string>
#include <string_view>

#include "common/base/fd.h"

namespace hpctl::fuzz {

// A file in memory, under a path that any function can open.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  int fd() const { return fd_.get(); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

// A directory of this process, in memory where the machine has /dev/shm; removed at its end.
const std::string& scratch();
// Replaces scratch()/NAME, and makes the directories above it. For nobody to rely on after a crash.
std::string put_file(const std::string& name, std::string_view bytes);

}  // namespace hpctl::fuzz
