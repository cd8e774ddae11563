// SPDX-License-Identifier: Apache-2.0
// What the kernel says of memory and of its OOM killer: of the memory cgroup of this process, v2 or
// v1, where it is mounted as usual, else of the machine.
//
// A process that the OOM killer ends dies of SIGKILL, like one that somebody has ended; only
// counters tell. The kernel counts before it sends the signal (mm/oom_kill.c), so whoever has seen
// the death sees the count: `oom_kill` in memory.events (v2) or memory.oom_control (v1), of victims
// in that cgroup, and in /proc/vmstat, of all of the machine.
#pragma once

#include <cstdint>
#include <string>

namespace hpctl {

// The least limit of this process's cgroup and those above it; 0 = none is known. `root` is put
// before /proc and /sys.
uint64_t memory_limit_bytes(const std::string& root = "");

// One thread.
class OomKills {
 public:
  explicit OomKills(std::string root = "");

  // What has been counted so far explains nothing that comes.
  void forget();
  // The kernel has ended one more process than was asked about.
  bool take_one();
  // "the kernel's OOM killer has ended a process here; its cgroup's memory limit is 8192 MiB"
  std::string describe() const;

 private:
  uint64_t count() const;

  std::string root_;
  uint64_t known_ = 0;
};

}  // namespace hpctl
