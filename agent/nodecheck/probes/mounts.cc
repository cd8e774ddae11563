// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/probes/mounts.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "agent/nodecheck/probes/probe.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/net/wait_for_fd.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr auto kMountDeadline = std::chrono::seconds(5);
constexpr auto kLightMountDeadline = std::chrono::milliseconds(500);
constexpr size_t kWrittenBytes = 1U << 20;
constexpr std::array<std::string_view, 13> kNetworkTypes = {
    "nfs",  "nfs4",   "lustre", "cifs", "smb3",  "ceph",     "beegfs",
    "gpfs", "wekafs", "pvfs2",  "afs",  "panfs", "glusterfs"};

bool is_network(std::string_view type) {
  return type.starts_with("fuse.") ||
         std::find(kNetworkTypes.begin(), kNetworkTypes.end(), type) != kNetworkTypes.end();
}

// /proc/self/mounts writes a space as "\040".
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '\\' && i + 3 < text.size() &&
        text.substr(i + 1, 3).find_first_not_of("01234567") == std::string_view::npos;
    if (is_escape) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct Child {
  pid_t pid = -1;
  UniqueFd answer;  // an errno as an int
};

Result<Child> begin_to_ask(const std::string& path, bool writes, AskMount ask) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot make a process");
  if (pid == 0) {
    ::alarm(0);
    const int error = ask(path.c_str(), writes);
    [[maybe_unused]] const ssize_t n = ::write(to.get(), &error, sizeof error);
    ::_exit(0);
  }
  return Child{pid, std::move(from)};
}

void take_answer(Child& child, MountHealth& health, SteadyClock::time_point begin) {
  int error = 0;
  health.answered = ::read(child.answer.get(), &error, sizeof error) == sizeof error;
  if (error != 0) health.trouble = std::strerror(error);
  health.milliseconds =
      std::chrono::duration<double, std::milli>(SteadyClock::now() - begin).count();
  child.answer.reset();
  ::waitpid(child.pid, nullptr, 0);
}

}  // namespace

std::vector<Mount> network_mounts(std::string_view mounts) {
  std::vector<Mount> found;
  while (!mounts.empty() && found.size() < kMostMounts) {
    const size_t end = std::min(mounts.find('\n'), mounts.size());
    const std::string_view line = mounts.substr(0, end);
    mounts.remove_prefix(std::min(end + 1, mounts.size()));
    // DEVICE PATH TYPE OPTIONS ...
    const size_t path = line.find(' ');
    const size_t type = path == std::string_view::npos ? path : line.find(' ', path + 1);
    if (type == std::string_view::npos) continue;
    const size_t options = std::min(line.find(' ', type + 1), line.size());
    const std::string_view name = line.substr(type + 1, options - type - 1);
    if (!is_network(name)) continue;
    found.push_back({unescaped(line.substr(path + 1, type - path - 1)), std::string(name)});
  }
  return found;
}

int ask_mount(const char* path, bool writes) {
  struct statvfs state {};
  if (::statvfs(path, &state) != 0) return errno;
  const int directory = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return errno;
  if (!writes) return 0;
  // Without a name: nothing is left behind, whatever happens.
  const int file = ::open(path, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return errno;
  static const std::array<char, 64U << 10> kPiece{};
  for (size_t written = 0; written < kWrittenBytes;) {
    const ssize_t n = ::write(file, kPiece.data(), kPiece.size());
    if (n <= 0) return errno;
    written += static_cast<size_t>(n);
  }
  return ::fsync(file) == 0 ? 0 : errno;
}

std::vector<MountHealth> ask_mounts(const std::vector<Mount>& mounts,
                                    std::chrono::milliseconds deadline, AskMount ask) {
  const auto begin = SteadyClock::now();
  const int64_t deadline_ms = deadline_in(deadline.count());
  std::vector<MountHealth> all;
  std::vector<Child> children;
  for (const Mount& mount : mounts) {
    all.push_back({mount.path, mount.type, false, "", 0});
    auto child = begin_to_ask(system_path(mount.path), mount.type.empty(), ask);
    if (!child.ok()) {
      all.back().answered = true;
      all.back().trouble = child.error().message;
    }
    children.push_back(child.ok() ? std::move(*child) : Child());
  }
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<size_t> of_entry;
    for (size_t i = 0; i < children.size(); ++i) {
      if (!children[i].answer.valid()) continue;
      entries.push_back({children[i].answer.get(), POLLIN, 0});
      of_entry.push_back(i);
    }
    if (entries.empty()) break;
    const auto ready = wait_for_fds(entries, deadline_ms);
    if (!ready.ok() || *ready == 0) break;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents != 0) take_answer(children[of_entry[i]], all[of_entry[i]], begin);
    }
  }
  for (const Child& child : children) {
    if (!child.answer.valid()) continue;
    ::kill(child.pid, SIGKILL);  // in the kernel it may not end for it; nobody waits
    ::waitpid(child.pid, nullptr, WNOHANG);
  }
  return all;
}

std::vector<Finding> probe_fs(const ProbeContext& context) {
  const auto text = read_file(system_path("/proc/self/mounts"), 4U << 20);
  std::vector<Mount> mounts = text.ok() ? network_mounts(*text) : std::vector<Mount>();
  for (const std::string& directory : context.directories) mounts.push_back({directory, ""});
  const bool is_light = context.depth == CheckDepth::kLight;
  const std::chrono::milliseconds deadline = is_light ? kLightMountDeadline : kMountDeadline;
  return {judge_mounts(ask_mounts(mounts, deadline), deadline.count())};
}

}  // namespace hpctl::agent
