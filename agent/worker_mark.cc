// SPDX-License-Identifier: Apache-2.0
#include "agent/worker_mark.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr size_t kMaxEnvironmentBytes = 8U << 20;

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

int signal_marked(const std::string& prefix) {
  const std::unique_ptr<DIR, CloseDirectory> proc(::opendir("/proc"));
  if (!proc) return 0;
  int found = 0;
  while (const dirent* entry = ::readdir(proc.get())) {
    const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 1 || pid == ::getpid()) continue;
    if (!mark_of(pid).starts_with(prefix)) continue;
    ::kill(pid, SIGKILL);
    ++found;
  }
  return found;
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
  while (signal_marked(prefix) > 0) {
    if (clock.monotonic_ms() >= deadline) return false;
    ::poll(nullptr, 0, 5);  // a killed process needs a moment to go
  }
  return true;
}

}  // namespace hpctl
