// SPDX-License-Identifier: Apache-2.0
#include "common/process/process_stat.h"

#include <cstdlib>
#include <sstream>

#include "common/base/check.h"
#include "common/base/file.h"

namespace hpctl {

std::string process_stat(pid_t pid, int field) {
  HP_CHECK(field >= kStateField);
  const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  // Field 2, the name in parentheses, may hold anything, also spaces and parentheses.
  const size_t name_end = stat.ok() ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat->substr(name_end + 1));
  std::string word;
  for (int i = kStateField; i <= field; ++i) fields >> word;
  return fields ? word : "";
}

bool is_exiting(pid_t pid) {
  constexpr int kFlagsField = 9;
  constexpr unsigned long kExitingFlag = 0x4;  // PF_EXITING
  return (std::strtoul(process_stat(pid, kFlagsField).c_str(), nullptr, 10) & kExitingFlag) != 0;
}

uint64_t proportional_memory(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/smaps_rollup", 4096);
  const size_t at = text.ok() ? text->find("\nPss:") : std::string::npos;
  if (at == std::string::npos) return 0;
  constexpr size_t kNameLength = 5;
  return std::strtoull(text->c_str() + at + kNameLength, nullptr, 10) * 1024;  // it counts in kB
}

}  // namespace hpctl
