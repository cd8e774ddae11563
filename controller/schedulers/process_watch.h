// SPDX-License-Identifier: Apache-2.0
// Tells at once when a process has ended, by pidfd: also for processes that are not our children
// (holders that an earlier controller started). Children are reaped here.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

class ProcessWatch {
 public:
  // Called on the watch's thread; must not block. `cause` is "exited with code 1", "killed by
  // SIGKILL", or "ended" where only a parent may know more.
  using Ended = std::function<void(pid_t pid, const std::string& cause)>;

  explicit ProcessWatch(Ended ended);
  ~ProcessWatch();  // as stop()
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Any thread. kNotFound when there is no such process. Watching twice is harmless.
  Outcome watch(pid_t pid);
  // No call of Ended begins after this.
  void stop();

 private:
  void run();
  void report(pid_t pid);

  Ended ended_;
  UniqueFd epoll_;
  UniqueFd stop_event_;
  std::mutex mutex_;
  std::map<pid_t, UniqueFd> watched_;
  std::thread thread_;
};

// False for a zombie too: it holds no lock and does nothing any more.
bool process_lives(pid_t pid);

}  // namespace hpctl
