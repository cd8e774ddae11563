// SPDX-License-Identifier: Apache-2.0
// Starts a program in a new session, with posix_spawn: no code of ours runs between fork and exec,
// and a failed exec is an error of the call.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

struct SpawnRequest {
  std::vector<std::string> argv;         // argv[0] = absolute path of the program
  std::string log_path;                  // stdout and stderr are appended; stdin is /dev/null
  int inherited_fd = -1;                 // becomes descriptor kSpawnedFd; -1 = none
  std::vector<std::string> without_env;  // names removed from our environment
  // NAME=VALUE, in place of our environment.
  std::optional<std::vector<std::string>> environment = {};
};
inline constexpr int kSpawnedFd = 3;

// The child has default signal actions, an empty signal mask, no descriptor above those named, and
// is our direct child: the caller reaps it. Safe in a program with threads.
Result<pid_t> spawn_in_new_session(const SpawnRequest& request);

// Likewise, with these descriptors of ours as its 0, 1 and 2 and our environment.
Result<pid_t> spawn_with_stdio(const std::vector<std::string>& argv,
                               const std::array<int, 3>& descriptors);

}  // namespace hpctl
