// SPDX-License-Identifier: Apache-2.0
// start_process: fork and exec; the child inherits only what the plan names.
//
// It does not wait for the exec, because the program's file may lie on a file server that does not
// answer. SpawnedProcess::exec_outcome() returns the result; a caller with a loop polls exec_pipe.
// spawn_process() waits; it is for programs that have nothing else to do.
//
// Everything is prepared before the fork; between fork and exec the child makes only
// async-signal-safe calls. The child gets descriptors 0..n-1 as listed and no others, default
// signal dispositions, an empty signal mask, its own process group, and (die_with_parent) SIGKILL
// when the *thread* that called start_process ends: call it from a thread that lives as long as the
// process. A failure in the child, exec included, is reported with its cause, not as an exit code.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

struct SpawnPlan {
  std::string program;  // path; the child looks up a bare name in the PATH of `env`
  std::vector<std::string> argv;
  std::vector<std::string> env;  // NAME=value, the whole environment
  std::string directory;         // "" = the parent's
  std::vector<int> descriptors;  // child's 0, 1, 2, ...
  bool die_with_parent = true;
  // Where Yama restricts tracing (ptrace_scope 1), the parent's other children may trace it.
  bool traceable = false;
  int oom_score_increase = 0;  // above the parent's; the kernel ends the highest score first
};

struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd pidfd;      // readable when the process has ended; the caller reaps it
  UniqueFd exec_pipe;  // readable when exec_outcome() is known; the caller may close it then
  std::string program;
  std::string directory;

  // Ok: the program runs, or the process was ended before. An error: it could not be executed, and
  // the process ends. nullopt: not known yet, or known before. Codes: kInvalidArgument (not a
  // program) is permanent; others, such as kNotFound and kPermissionDenied, may go away.
  std::optional<Outcome> exec_outcome() const;
};

// An error: there is no process.
Result<SpawnedProcess> start_process(const SpawnPlan& plan);
// Waits for the exec; an error also where that failed, and then there is no process.
Result<SpawnedProcess> spawn_process(const SpawnPlan& plan);

// The program argv[0] with our environment, nothing to read, and its output in a pipe whose end
// does not block, also where something that it left running still has the other; standard error is
// ours.
struct HeardProcess {
  SpawnedProcess process;
  UniqueFd output;
};
Result<HeardProcess> spawn_heard(std::vector<std::string> argv);
// Likewise, without waiting for the exec.
Result<HeardProcess> start_heard(std::vector<std::string> argv);

// This process's environment as NAME=value, with those names replaced or added.
std::vector<std::string> environment_with(const std::vector<std::string>& changes);

}  // namespace hpctl
