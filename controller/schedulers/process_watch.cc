// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/process_watch.h"
#include "common/process/pidfd.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstring>

namespace hpctl {
namespace {

constexpr uint64_t kStopKey = 0;  // no process has this pid

std::string reap(int pidfd) {
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return "ended";
  }
  if (info.si_code == CLD_EXITED) return "exited with code " + std::to_string(info.si_status);
  const char* name = ::sigabbrev_np(info.si_status);
  return "killed by " +
         (name == nullptr ? "signal " + std::to_string(info.si_status) : "SIG" + std::string(name));
}

}  // namespace

bool process_lives(pid_t pid) {
  if (pid <= 0) return false;
  const UniqueFd fd = open_pidfd(pid);
  if (!fd.valid()) return false;
  pollfd ended{fd.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 0;
}

ProcessWatch::ProcessWatch(Ended ended)
    : ended_(std::move(ended)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_event_(::eventfd(0, EFD_CLOEXEC)) {
  HP_CHECK(epoll_.valid() && stop_event_.valid());
  epoll_event event{EPOLLIN, {.u64 = kStopKey}};
  HP_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_event_.get(), &event) == 0);
  thread_ = std::thread([this] { run(); });
}

ProcessWatch::~ProcessWatch() { stop(); }

void ProcessWatch::stop() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_event_.get(), 1);
  thread_.join();
}

Outcome ProcessWatch::watch(pid_t pid) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (watched_.contains(pid)) return Ok{};
  UniqueFd fd = pid > 0 ? open_pidfd(pid) : UniqueFd();
  if (!fd.valid()) {
    return Error{ErrorCode::kNotFound, "there is no process " + std::to_string(pid)};
  }
  epoll_event event{EPOLLIN, {.u64 = static_cast<uint64_t>(pid)}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
    return errno_error("cannot watch process " + std::to_string(pid));
  }
  watched_.emplace(pid, std::move(fd));
  return Ok{};
}

void ProcessWatch::report(pid_t pid) {
  std::string cause;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = watched_.find(pid);
    if (it == watched_.end()) return;
    cause = reap(it->second.get());
    watched_.erase(it);
  }
  ended_(pid, cause);
}

void ProcessWatch::run() {
  std::array<epoll_event, 64> events{};
  for (;;) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    if (n < 0 && errno != EINTR) return;
    for (int i = 0; i < n; ++i) {
      if (events[static_cast<size_t>(i)].data.u64 == kStopKey) return;
      report(static_cast<pid_t>(events[static_cast<size_t>(i)].data.u64));
    }
  }
}

}  // namespace hpctl
