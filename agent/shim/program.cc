// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "common/base/fd.h"

namespace hpctl::shim {
namespace {

void exec_program(const ProgramPlan& plan) {
  for (const auto& [name, value] : plan.defaults) ::setenv(name.c_str(), value.c_str(), 0);
  for (const auto& [name, value] : plan.variables) ::setenv(name.c_str(), value.c_str(), 1);
  // Slurm named the shim; the program expects to find itself.
  if (std::getenv("SLURM_TASK_PID") != nullptr) {
    ::setenv("SLURM_TASK_PID", std::to_string(::getpid()).c_str(), 1);
  }
  plan.argv[0] = const_cast<char*>(plan.program.c_str());
  for (const int signal : plan.ignored) ::signal(signal, SIG_IGN);
  for (const int descriptor : plan.descriptors) ::fcntl(descriptor, F_SETFD, 0);
  ::sigaction(SIGCHLD, &plan.signals.child, nullptr);
  ::sigprocmask(SIG_SETMASK, &plan.signals.mask, nullptr);
  // A bare name was not found where srun ran; inside a container it may be in PATH.
  if (plan.program.find('/') == std::string::npos) {
    ::execvp(plan.program.c_str(), plan.argv);
  } else {
    ::execv(plan.program.c_str(), plan.argv);
  }
}

}  // namespace

Result<pid_t> start_program(const ProgramPlan& plan, StartFailure& failure) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    failure.error = errno;
    return errno_error("cannot create a pipe");
  }
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t shim = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    failure.error = errno;
    return errno_error("cannot fork");
  }
  if (pid == 0) {
    // The shim has one thread, so the child may do anything. Without its shim a program would run
    // on unseen: it dies with it.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != shim) ::_exit(127);
    // Where Yama restricts tracing the shim's other child, hpstacks, may read the stacks.
    ::prctl(PR_SET_PTRACER, shim);
    exec_program(plan);
    const int error = errno;
    [[maybe_unused]] const ssize_t n = ::write(write_end.get(), &error, sizeof(error));
    ::_exit(127);
  }
  write_end.reset();
  ssize_t n = 0;
  do {
    n = ::read(read_end.get(), &failure.error, sizeof(failure.error));
  } while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(sizeof(failure.error))) return pid;
  ::waitpid(pid, nullptr, 0);
  return errno_error("cannot execute " + plan.program, failure.error);
}

int become_program(const ProgramPlan& plan) {
  exec_program(plan);
  return errno;
}

std::string exec_message(const std::string& program, int error) {
  return "hpagent-shim: error: execve(): " + program + ": " + std::strerror(error) + "\n";
}

void end_like(int status) {
  if (!WIFSIGNALED(status)) ::_exit(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_DUMPABLE, 0);  // also where cores are piped to a program
  ::signal(signal, SIG_DFL);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::raise(signal);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::_exit(128 + signal);  // a signal that does not end a process by default
}

}  // namespace hpctl::shim
