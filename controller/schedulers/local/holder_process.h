// SPDX-License-Identifier: Apache-2.0
// The holder process of a virtual node, distinguished from any other process by its command line: a
// pid read from a lock file may long belong to another process.
#pragma once

#include <sys/types.h>

#include <optional>

#include "common/base/result.h"
#include "controller/core/types.h"

namespace hpctl {

// The launch that started this holder; nullopt when the process is not a holder of `node`.
// ActionId{} for a holder that was started without one.
std::optional<ActionId> launch_of_holder(pid_t pid, const core::NodeKey& node);

// Ends the holder with SIGKILL, which also ends one that hangs or is stopped; its reaper then
// ends the rest of the node and frees the lock, which the next holder waits for. Waits for the
// holder's end, for some seconds. Harmless when it is gone or the pid is no longer its own.
// kUnavailable when it does not end.
Outcome kill_holder(pid_t pid, const core::NodeKey& node);

}  // namespace hpctl
