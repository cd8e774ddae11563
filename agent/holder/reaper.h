// SPDX-License-Identifier: Apache-2.0
// The reaper: a process of the holder's that outlives it by a few milliseconds.
//
// When the holder dies, PDEATHSIG ends its children, that is the workers and the agent proper, but
// not what the workers have started themselves. The reaper waits for the end of a pipe whose
// other end only the holder has, then ends every process that carries the mark of this holder's
// life. It shares the holder's lock on the node until it is through: a free lock means that nothing
// of the node is left.
#pragma once

#include <string>

namespace hpctl::holder {

inline constexpr int kReaperPipeFd = 3;
inline constexpr int kReaperLockFd = 4;

// Body of `hpagent --reaper BOOT`. Returns the exit code.
int run_reaper(const std::string& boot_id);

}  // namespace hpctl::holder
