// SPDX-License-Identifier: Apache-2.0
// pidfd_open(2) and pidfd_send_signal(2), without glibc's header: 2.36 forgets extern "C" in it,
// older ones lack it.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/fd.h"

namespace hpctl {

// Readable once the process has ended; close-on-exec. Invalid, with errno, when there is no such
// process.
inline UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

// As kill(2), and never to a later process of the same pid.
inline int signal_pidfd(const UniqueFd& process, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0));
}

}  // namespace hpctl
