// SPDX-License-Identifier: Apache-2.0
// What processes cost, as /proc has it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "common/base/check.h"
#include "common/base/file.h"

namespace hpctl::bench {

// User and system time, and resident memory, of a process; of one that is gone nothing.
struct Usage {
  double cpu_s = 0;
  double rss_mib = 0;
};

inline Usage usage_of(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!text.ok()) return {};
  unsigned long user = 0;
  unsigned long system = 0;
  long pages = 0;
  HP_CHECK(std::sscanf(text->c_str() + text->rfind(')') + 1,
                       " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d "
                       "%*d %*u %*u %ld",
                       &user, &system, &pages) == 3);
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return {static_cast<double>(user + system) / ticks,
          static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1048576.0};
}

// Its share of memory: what other processes map as well is divided by their number.
inline double pss_mib(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  if (!text.ok()) return 0;
  const size_t at = text->find("\nPss:");
  long kib = 0;
  if (at == std::string::npos || std::sscanf(text->c_str() + at, "\nPss: %ld", &kib) != 1) return 0;
  return static_cast<double>(kib) / 1024.0;
}

}  // namespace hpctl::bench
