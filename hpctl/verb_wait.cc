// SPDX-License-Identifier: Apache-2.0
// hpctl wait: the second half of `submit --wait`, for a job that runs already.
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/interrupt_flag.h"
#include "hpctl/open_job.h"
#include "hpctl/submit_directory.h"
#include "hpctl/verbs.h"
#include "hpctl/wait_for_job.h"

namespace hpctl {
namespace wait_parts {
namespace {

constexpr const char* kHelp = R"(
Shows the progress of a job until it has ended: on a terminal one line that is updated, elsewhere
a line every few seconds, and in both cases faults and recoveries. If the job's controller dies
meanwhile, it is started again. If the file system of HPCTL_HOME does not answer, hpctl says so once
and waits for it. Ctrl-C ends the waiting, not the job.

Examples:
  hpctl wait quickstart
  hpctl wait 3 && hpctl checkpoint digest 3

Options:
  --json  no progress; at the end the last status as `hpctl status --json`

Exit codes: 0 the job finished, 1 it failed or was cancelled, or no such job, 3 no controller
answers and none could be started, 130 interrupted
)";

constexpr std::chrono::milliseconds kPollInterval{250};

// False: a signal came before the file system of the home answered.
bool await_home(const HomePaths& paths) {
  const InterruptFlag flag;
  while (!InterruptFlag::raised()) {
    if (directory_answers(paths.jobs())) return true;
    std::this_thread::sleep_for(kPollInterval);
  }
  return false;
}

// nullopt: interrupted. A job that cannot be found because the home's file system does not answer
// may be found when it does.
std::optional<Result<OpenJob>> open_patiently(const Invocation& invocation) {
  auto job = open_job(invocation);
  const auto paths = home_from_environment();
  const bool may_be_silent = !job.ok() && job.error().code == ErrorCode::kUnavailable;
  if (!may_be_silent || !paths.ok() || directory_answers(paths->jobs())) {
    return std::optional<Result<OpenJob>>(std::move(job));
  }
  invocation.terminal.err << "hpctl: " << printable(job.error().message)
                          << "; waiting until it answers\n";
  invocation.terminal.err.flush();
  if (!await_home(*paths)) return std::nullopt;
  return open_job(invocation);
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  auto opened = open_patiently(invocation);
  if (!opened) return kExitInterrupted;
  Result<OpenJob>& job = *opened;
  if (!job.ok()) return report(terminal, job.error());
  const bool has_files = job->has_files();
  if (!has_files) terminal.err << "hpctl: " << printable(job->notice()) << "\n";
  if (has_ended(job->view.state)) return report_end(invocation, job->paths, job->view);
  if (!has_files || is_slurm_job(job->paths, job->id)) {
    return wait_and_report(invocation, job->paths, std::move(job->source), job->id);
  }
  auto client = ControllerClient::ensure(job->paths);
  if (!client.ok()) return report(terminal, client.error());
  return wait_and_report(invocation, job->paths, std::move(*client), job->id);
}

}  // namespace
}  // namespace wait_parts

Verb wait_verb() {
  return {"wait",
          "JOB",
          "show the progress of a job until it has ended",
          wait_parts::kHelp,
          1,
          1,
          {},
          wait_parts::run};
}

}  // namespace hpctl
