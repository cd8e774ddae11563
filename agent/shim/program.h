// SPDX-License-Identifier: Apache-2.0
// The task's program as a child of the shim: same process group, session, descriptors, limits and
// signal dispositions as if Slurm had executed it directly.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace hpctl::shim {

// The shim's inherited signal state; the program gets it back.
struct InheritedSignals {
  sigset_t mask;
  struct sigaction child;
};

struct ProgramPlan {
  std::string program;
  char** argv = nullptr;  // argv[0] is replaced by `program`
  // Added where the environment has no such variable yet.
  std::vector<std::pair<std::string, std::string>> defaults;
  // Set whatever the environment has.
  std::vector<std::pair<std::string, std::string>> variables;
  InheritedSignals signals;
  std::vector<int> ignored = {};      // signals, besides those that are ignored anyway
  std::vector<int> descriptors = {};  // it keeps, although they are close-on-exec
};

// The new process; an error is what exec said (its errno is exit_code_of the error below).
struct StartFailure {
  int error = 0;  // errno
};
Result<pid_t> start_program(const ProgramPlan& plan, StartFailure& failure);

// Replaces this process by the program, as if the shim had never been. Returns errno.
int become_program(const ProgramPlan& plan);

// slurmstepd's message when it cannot execute a task's program.
std::string exec_message(const std::string& program, int error);

// Ends this process as a program with this wait status ended: same exit code, or same signal (then
// without a second core file).
[[noreturn]] void end_like(int status);

}  // namespace hpctl::shim
