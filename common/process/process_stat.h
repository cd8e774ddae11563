// SPDX-License-Identifier: Apache-2.0
// The kernel's data about a process, from /proc/PID/stat and /proc/PID/smaps_rollup.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace hpctl {

// R running, S sleeping, D uninterruptible, T stopped, Z a zombie, ...
inline constexpr int kStateField = 3;

// A field by its number in proc(5), from kStateField on; "" when there is no such process.
std::string process_stat(pid_t pid, int field);

// The kernel is taking the process down, or has done so. It closes its sockets on that way, before
// it can be waited for: a peer may complain of its death before its parent can see it.
bool is_exiting(pid_t pid);

// Bytes of the process's memory, with shared memory divided by the number of its users (Pss), so
// the values of several processes add up; 0 = unknown. The kernel walks all its pages: 2 to 3 ms
// for 180 MiB.
uint64_t proportional_memory(pid_t pid);

}  // namespace hpctl
