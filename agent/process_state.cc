// SPDX-License-Identifier: Apache-2.0
#include "agent/process_state.h"

#include "common/base/file.h"

namespace hpctl::agent {

std::string process_state(pid_t pid) {
  const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!stat.ok()) return "";
  const size_t name_end = stat->rfind(") ");  // the name before it may hold anything
  return name_end == std::string::npos ? "" : stat->substr(name_end + 2, 1);
}

}  // namespace hpctl::agent
