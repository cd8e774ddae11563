// SPDX-License-Identifier: Apache-2.0
// The kernel's counters of memory and of its OOM killer: for the memory cgroup of this process, v2
// or v1, if it is mounted as usual, else for the machine.
//
// A process that the OOM killer ends dies of SIGKILL, like any killed process; only counters show
// the difference. The kernel counts before it sends the signal (mm/oom_kill.c), so an observer of
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

  // Counts up to now explain no later death.
  void forget();
  // Returns whether the kernel has ended one more process than this was called for.
  bool take_one();
  // "the kernel's OOM killer has ended a process here; its cgroup's memory limit is 8192 MiB"
  std::string describe() const;

 private:
  uint64_t count() const;

  std::string root_;
  uint64_t known_ = 0;
};

}  // namespace hpctl
