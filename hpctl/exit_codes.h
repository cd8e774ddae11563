// SPDX-License-Identifier: Apache-2.0
// The meaning of the exit status of every verb; `hpctl --help` and docs/cli.md say the same.
#pragma once

#include "common/base/result.h"

namespace hpctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;         // the job failed, or a thing was not found or refused
inline constexpr int kExitUsage = 2;          // wrong arguments, a bad job file, bad data
inline constexpr int kExitNoController = 3;   // no controller or scheduler answers
inline constexpr int kExitInterrupted = 130;  // Ctrl-C while waiting; the job goes on

inline int exit_code_of(const Error& error) {
  return error.code == ErrorCode::kUnavailable ? kExitNoController : kExitFailed;
}

// For the user's input: a mistake in it is wrong input, whatever file it is in.
inline int exit_code_of_input(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : exit_code_of(error);
}

// For the content of a job file, and for files that it names and that are missing.
inline int exit_code_of_job_file(const Error& error) {
  return error.code == ErrorCode::kNotFound ? kExitUsage : exit_code_of_input(error);
}

}  // namespace hpctl
