// SPDX-License-Identifier: Apache-2.0
// A memory cgroup of its own, version 1 or 2, for processes of a test; "" as a path where there is
// none to be had: it takes root, and the controller of memory.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace hpctl {

class MemoryCgroup {
 public:
  explicit MemoryCgroup(uint64_t bytes) {
    for (const bool v2 : {false, true}) {
      root_ = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
      path_ = root_ + "/hpctl-test-" + std::to_string(::getpid());
      if (::mkdir(path_.c_str(), 0755) == 0) {
        const char* limit = v2 ? "/memory.max" : "/memory.limit_in_bytes";
        if (put(path_ + limit, std::to_string(bytes))) return;
        ::rmdir(path_.c_str());
      }
      path_.clear();
    }
  }
  // Its processes have died, or were released.
  ~MemoryCgroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  const std::string& path() const { return path_; }
  // What a process starts from then on is in it, too.
  bool take(pid_t pid) const { return put(path_ + "/cgroup.procs", std::to_string(pid)); }
  bool release(pid_t pid) const { return put(root_ + "/cgroup.procs", std::to_string(pid)); }
  // How often the kernel ended a process of it.
  uint64_t kills() const {
    for (const char* file : {"/memory.oom_control", "/memory.events"}) {
      const auto text = read_file(path_ + file);
      const size_t at = text.ok() ? text->find("oom_kill ") : std::string::npos;
      if (at != std::string::npos) return std::strtoull(text->c_str() + at + 9, nullptr, 10);
    }
    return 0;
  }

 private:
  static bool put(const std::string& file, const std::string& text) {
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    return fd.valid() &&
           ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }

  std::string root_;
  std::string path_;
};

}  // namespace hpctl
