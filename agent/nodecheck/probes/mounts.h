// SPDX-License-Identifier: Apache-2.0
// Whether file systems answer. A hung one blocks its caller in the kernel, for good. So a separate
// process queries each of them, and is abandoned when it does not come back.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "agent/nodecheck/core/host_health.h"

namespace hpctl::agent {

struct Mount {
  std::string path;
  std::string type;  // "" = a directory that somebody named: a file is written there, too
};

// Network file systems in the text of /proc/self/mounts. At most kMostMounts.
inline constexpr size_t kMostMounts = 64;
std::vector<Mount> network_mounts(std::string_view mounts);

// The query of one mount, in its process; an errno, 0 = well. After fork(): only async-signal-safe
// calls.
using AskMount = int (*)(const char* path, bool writes);
// statvfs and open; with `writes` 1 MiB into an unnamed file, and fsync.
int ask_mount(const char* path, bool writes);

// All at the same time.
std::vector<MountHealth> ask_mounts(const std::vector<Mount>& mounts,
                                    std::chrono::milliseconds deadline, AskMount ask = ask_mount);

}  // namespace hpctl::agent
