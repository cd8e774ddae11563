// SPDX-License-Identifier: Apache-2.0
#include "common/process/memory_cgroup.h"

#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "common/base/file.h"

namespace hpctl {

namespace {

// A cgroup of this process: the mount of its hierarchy, its path there, and the names of its files.
struct MemoryCgroup {
  std::string mount;
  std::string path;
  const char* limit_file;
  const char* events_file;
};

std::vector<MemoryCgroup> own_cgroups(const std::string& root) {
  const auto groups = read_file(root + "/proc/self/cgroup");
  if (!groups.ok()) return {};
  std::vector<MemoryCgroup> found;
  std::istringstream lines(*groups);
  for (std::string line; std::getline(lines, line);) {
    const size_t v1 = line.find(":memory:");
    if (line.starts_with("0::")) {
      found.push_back({root + "/sys/fs/cgroup", line.substr(3), "/memory.max", "/memory.events"});
    } else if (v1 != std::string::npos) {
      found.push_back({root + "/sys/fs/cgroup/memory", line.substr(v1 + 8),
                       "/memory.limit_in_bytes", "/memory.oom_control"});
    }
  }
  return found;
}

// The number behind "oom_kill " at the beginning of a line.
std::optional<uint64_t> oom_kills_in(const std::string& file) {
  const auto text = read_file(file);
  if (!text.ok()) return std::nullopt;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("oom_kill ")) return std::strtoull(line.c_str() + 9, nullptr, 10);
  }
  return std::nullopt;
}

}  // namespace

uint64_t memory_limit_bytes(const std::string& root) {
  uint64_t least = 0;
  for (const MemoryCgroup& group : own_cgroups(root)) {
    for (std::string path = group.path;; path.resize(path.rfind('/'))) {
      const auto text = read_file(group.mount + path + group.limit_file);
      const uint64_t limit = text.ok() ? std::strtoull(text->c_str(), nullptr, 10) : 0;
      if (limit > 0 && (least == 0 || limit < least)) least = limit;
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

OomKills::OomKills(std::string root) : root_(std::move(root)) { forget(); }

void OomKills::forget() { known_ = count(); }

bool OomKills::take_one() {
  if (count() <= known_) return false;
  ++known_;
  return true;
}

std::string OomKills::describe() const {
  const uint64_t limit = memory_limit_bytes(root_);
  // v1 writes no limit as the largest number of pages.
  const bool is_limited = limit > 0 && limit < (uint64_t{1} << 60);
  return "the kernel's OOM killer has ended a process here; " +
         (is_limited ? "its cgroup's memory limit is " + std::to_string(limit >> 20) + " MiB"
                     : std::string("no cgroup limits its memory, the node's was used up"));
}

uint64_t OomKills::count() const {
  for (const MemoryCgroup& group : own_cgroups(root_)) {
    const auto kills = oom_kills_in(group.mount + group.path + group.events_file);
    if (kills) return *kills;
  }
  return oom_kills_in(root_ + "/proc/vmstat").value_or(0);
}

}  // namespace hpctl
