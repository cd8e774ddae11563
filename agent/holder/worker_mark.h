// SPDX-License-Identifier: Apache-2.0
// The mark that identifies all descendants of a worker, whatever process group or session they have
// moved to: the environment variable HPCTL_WORKER=BOOT.INCARNATION, which children inherit. A
// process that changes its own environment after exec keeps the mark, since /proc/PID/environ shows
// the environment of its exec. A process that execs with a cleared environment and in a new session
// escapes (docs/decisions/0301-guardian-and-mark.md).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hpctl {

inline constexpr char kWorkerMarkName[] = "HPCTL_WORKER";

// `incarnation`: the number of that one process among those started under `boot_id`.
std::string worker_mark(const std::string& boot_id, uint64_t incarnation);

// The process's own mark; "" when it has none, is gone, or belongs to another user.
std::string mark_of(pid_t pid);

// Children of this process, zombies included. Call from the only thread.
std::vector<pid_t> own_children();

// SIGKILLs every process whose mark begins with `prefix`, again and again until none is found and
// those have ended, with their files, or `timeout_ms` has passed. Also awaits own children that are
// ending: they may have had such a mark. True when none is left. Call from the only thread.
bool kill_marked(const std::string& prefix, int64_t timeout_ms);

}  // namespace hpctl
