// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/locked_memory.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>

#include "common/base/file.h"

namespace hpctl::holder {
namespace {

constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, of Linux 5.14; glibc 2.35 names it

bool may_lock_all() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY) return true;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
  return ::syscall(SYS_capget, &header, data.data()) == 0 &&
         (data[0].effective & (1U << CAP_IPC_LOCK)) != 0;
}

// Reads in every file that is mapped: "BEGIN-END PERMISSIONS OFFSET DEVICE INODE PATH".
void read_in_mapped_files() {
  const auto maps = read_file("/proc/self/maps");
  if (!maps.ok()) return;
  std::istringstream lines(*maps);
  for (std::string line; std::getline(lines, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char readable = '-';
    if (std::sscanf(line.c_str(), "%lx-%lx %c", &begin, &end, &readable) != 3) continue;
    if (readable != 'r' || line.find(" /") == std::string::npos) continue;
    // An older kernel reads them in when they are needed.
    ::madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateRead);
  }
}

}  // namespace

Outcome lock_memory() {
  if (!may_lock_all()) {
    return Error{ErrorCode::kFailedPrecondition,
                 "memory is not locked: RLIMIT_MEMLOCK (ulimit -l) is not unlimited"};
  }
  read_in_mapped_files();
  if (::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0) {
    return errno_error("memory is not locked");
  }
  return Ok{};
}

}  // namespace hpctl::holder
