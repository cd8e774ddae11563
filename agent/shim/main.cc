// SPDX-License-Identifier: Apache-2.0
// hpagent-shim: stands in a task's place and runs the task's program as its child, so that the
// program can be started again without a new step. The SPANK plugin puts it in place of argv[0];
// people never run it. Linked statically, because it may be executed inside a container.
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "agent/shim/controller_connection.h"
#include "agent/shim/supervision.h"
#include "common/base/file.h"

namespace {

using hpctl::Outcome;
using namespace hpctl::shim;  // NOLINT(google-build-using-namespace): this file is the shim

// All signals are blocked and read from a descriptor, except those of our own errors.
hpctl::UniqueFd take_signals(InheritedSignals& inherited) {
  sigset_t all;
  ::sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    ::sigdelset(&all, fault);
  }
  ::sigprocmask(SIG_BLOCK, &all, &inherited.mask);
  // Ignored, it would make the kernel reap the program unseen.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &inherited.child);
  return hpctl::UniqueFd(::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
}

// The process management interface is a conversation with this very process; a second program in
// the same task would be refused by Slurm in the middle of it.
bool uses_pmi() {
  for (const char* name : {"PMI_FD", "PMI_RANK", "PMIX_RANK", "PMIX_NAMESPACE"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

void notice(const TaskSettings& settings, const std::string& why) {
  if (!settings.is_speaker()) return;
  const std::string text =
      "hpctl: " + settings.node + ": " + why + "; running without auto-resume\n";
  [[maybe_unused]] const Outcome written = hpctl::write_all(STDERR_FILENO, text, "stderr");
}

[[noreturn]] void run_without(const ProgramPlan& plan) {
  hide_step_environment();
  const int error = become_program(plan);
  const std::string text = exec_message(plan.program, error);
  [[maybe_unused]] const Outcome written = hpctl::write_all(STDERR_FILENO, text, "stderr");
  ::_exit(error);
}

}  // namespace

int main(int argc, char** argv) {
  TaskSettings settings;
  const Outcome read = read_task_settings(settings);
  if (argc < 1 || settings.program.empty()) {
    std::fputs("hpagent-shim is for Slurm's plugin hpctl_auto_resume, which starts it\n", stderr);
    return 2;
  }
  ProgramPlan plan;
  plan.program = settings.program;
  plan.argv = argv;
  hpctl::UniqueFd signals = take_signals(plan.signals);
  if (!read.ok()) {
    notice(settings, read.error().message);
    run_without(plan);
  }
  if (uses_pmi()) {
    notice(settings,
           "the step uses PMI, whose tasks cannot be started again within a step (a program that "
           "does not need it: srun --mpi=none)");
    run_without(plan);
  }
  auto controller = join_step(settings);
  if (!controller.ok()) {
    notice(settings, "the step's controller does not answer: " + controller.error().message);
    run_without(plan);
  }
  hide_step_environment();
  ::prctl(PR_SET_NAME, "hpagent-shim");  // Slurm executed a descriptor, whose number was the name
  Supervision(settings, plan, std::move(controller).value(), std::move(signals)).run();
}
