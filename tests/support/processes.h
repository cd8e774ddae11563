// SPDX-License-Identifier: Apache-2.0
// The ends of processes that need not be our children, and those that a test has started, itself or
// through others: whoever carries its mark, an entry of the environment, which is inherited. So
// also those are found that nobody's record names yet.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/process/pidfd.h"

namespace hpctl {

// Neither gone nor a zombie.
inline bool process_runs(pid_t pid) {
  const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!stat.ok()) return false;
  const size_t name_end = stat->rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return false;
  const char state = (*stat)[name_end + 2];
  return state != 'Z' && state != 'X';
}

inline constexpr int kProcessEndMs = 60'000;

// The child of `parent`'s first thread with that name (/proc/PID/comm); -1 = none.
inline pid_t child_named(pid_t parent, const std::string& name) {
  const std::string pid = std::to_string(parent);
  const auto text = read_file("/proc/" + pid + "/task/" + pid + "/children");
  if (!text.ok()) return -1;
  std::istringstream children(*text);
  for (pid_t child = 0; children >> child;) {
    const auto comm = read_file("/proc/" + std::to_string(child) + "/comm");
    if (comm.ok() && *comm == name + "\n") return child;
  }
  return -1;
}

// The log writer of a process (common/process/log_writer.h); -1 = none runs at this moment.
inline pid_t log_writer_of(pid_t process) {
  const pid_t keeper = child_named(process, "hp-log-keeper");
  return keeper < 0 ? -1 : child_named(keeper, "hp-log-writer");
}

// Whether it writes another process's log, or keeps who does.
inline bool is_of_a_log(pid_t process) {
  const auto comm = read_file("/proc/" + std::to_string(process) + "/comm");
  return comm.ok() && comm->starts_with("hp-log-");
}

// With all its threads, so also with its locks and its files: the first thread may be a zombie
// before that. False when it goes on.
inline bool await_end(const UniqueFd& process) {
  if (!process.valid()) return true;
  pollfd ended{process.get(), POLLIN, 0};
  return ::poll(&ended, 1, kProcessEndMs) == 1;
}

inline bool kill_process(pid_t pid) {
  const UniqueFd process = open_pidfd(pid);
  if (process.valid()) signal_pidfd(process, SIGKILL);
  return await_end(process);
}

// Of one that begins a program at this moment it is empty, which does not last.
inline std::string environment_of(const std::string& pid) {
  constexpr int kLooks = 20;
  std::array<char, 1> ignored{};
  for (int look = 0; look < kLooks; ++look) {
    const auto text = read_file("/proc/" + pid + "/environ");
    if (!text.ok() || !text->empty()) return text.ok() ? *text : "";
    const std::string program = "/proc/" + pid + "/exe";  // the kernel's own threads have none
    if (::readlink(program.c_str(), ignored.data(), ignored.size()) < 0) return "";
    ::poll(nullptr, 0, 1);
  }
  return "";
}

// Those that run and have `mark`, "NAME=VALUE", in their environment.
inline std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> found;
  const auto names = list_directory("/proc");
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = '\0' + environment_of(name) + '\0';
    if (environment.find('\0' + mark + '\0') == std::string::npos) continue;
    const auto pid = static_cast<pid_t>(std::stoi(name));
    if (process_runs(pid)) found.push_back(pid);
  }
  return found;
}

// Kills them, and whatever they start meanwhile, until nobody is left; false when one goes on.
inline bool end_marked_processes(const std::string& mark) {
  constexpr int kEmptyLooks = 2;  // a child may appear behind the first look, not behind both
  for (int empty = 0; empty < kEmptyLooks;) {
    std::vector<UniqueFd> ending;
    for (const pid_t pid : marked_processes(mark)) {
      ending.push_back(open_pidfd(pid));
      if (ending.back().valid()) signal_pidfd(ending.back(), SIGKILL);
    }
    if (!std::all_of(ending.begin(), ending.end(), await_end)) return false;
    empty = ending.empty() ? empty + 1 : 0;
  }
  return true;
}

}  // namespace hpctl
