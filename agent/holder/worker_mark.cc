// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/worker_mark.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/net/wait_for_fd.h"
#include "common/process/pidfd.h"
#include "common/process/process_stat.h"

namespace hpctl {
namespace {

constexpr size_t kMaxEnvironmentBytes = 8U << 20;

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// By process id.
using Ending = std::map<pid_t, UniqueFd>;

// A process loses its memory, and with that its mark, before its files.
void add_exiting_children(Ending& ending) {
  for (const pid_t pid : own_children()) {
    if (is_exiting(pid)) ending.try_emplace(pid, open_pidfd(pid));
  }
}

// True when there was one.
bool signal_marked(const std::string& prefix, Ending& ending) {
  const std::unique_ptr<DIR, CloseDirectory> proc(::opendir("/proc"));
  if (!proc) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(proc.get())) {
    const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 1 || pid == ::getpid()) continue;
    if (!mark_of(pid).starts_with(prefix)) continue;
    ending.try_emplace(pid, open_pidfd(pid));
    ::kill(pid, SIGKILL);
    found = true;
  }
  return found;
}

// With all its threads; also where we have no descriptor to see it by.
bool has_ended(const UniqueFd& process) {
  return !process.valid() || wait_for_fd(process.get(), POLLIN, /*deadline_ms=*/0).ok();
}

}  // namespace

std::string worker_mark(const std::string& boot_id, uint64_t incarnation) {
  return boot_id + "." + std::to_string(incarnation);
}

std::string mark_of(pid_t pid) {
  const auto environment =
      read_file("/proc/" + std::to_string(pid) + "/environ", kMaxEnvironmentBytes);
  if (!environment.ok()) return "";
  const std::string wanted = std::string(kWorkerMarkName) + "=";
  std::string_view rest = *environment;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.starts_with(wanted)) return std::string(entry.substr(wanted.size()));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
  }
  return "";
}

std::vector<pid_t> own_children() {
  const std::string self = std::to_string(::getpid());
  const auto text = read_file("/proc/" + self + "/task/" + self + "/children");
  std::vector<pid_t> children;
  if (!text.ok()) return children;
  std::istringstream numbers(*text);
  for (pid_t pid = 0; numbers >> pid;) children.push_back(pid);
  return children;
}

bool kill_marked(const std::string& prefix, int64_t timeout_ms) {
  const SystemClock clock;
  const int64_t deadline = clock.monotonic_ms() + timeout_ms;
  Ending ending;
  for (;;) {
    const bool found = signal_marked(prefix, ending);
    add_exiting_children(ending);
    std::erase_if(ending, [](const auto& entry) { return has_ended(entry.second); });
    if (!found && ending.empty()) return true;
    if (clock.monotonic_ms() >= deadline) return false;
    ::poll(nullptr, 0, 5);  // a killed process needs a moment to go
  }
}

}  // namespace hpctl
