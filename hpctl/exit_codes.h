// SPDX-License-Identifier: Apache-2.0
// What the exit status of every verb means; `hpctl --help` and docs/cli.md say the same.
#pragma once

#include "common/base/result.h"

namespace hpctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;         // the job failed, or a thing was not found or refused
inline constexpr int kExitUsage = 2;          // wrong arguments or a bad job file
inline constexpr int kExitNoController = 3;   // no controller or scheduler answers
inline constexpr int kExitInterrupted = 130;  // Ctrl-C while waiting; the job goes on

inline int exit_code_of(const Error& error) {
  return error.code == ErrorCode::kUnavailable ? kExitNoController : kExitFailed;
}

}  // namespace hpctl
