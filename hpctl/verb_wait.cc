// SPDX-License-Identifier: Apache-2.0
// hpctl wait: the second half of `submit --wait`, for a job that runs already.
#include "hpctl/exit_codes.h"
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
meanwhile, it is started again. Ctrl-C ends the waiting, not the job.

Examples:
  hpctl wait quickstart
  hpctl wait 3 && hpctl checkpoint digest 3

Options:
  --json  no progress; at the end the last status as `hpctl status --json`

Exit codes: 0 the job finished, 1 it failed or was cancelled, or no such job, 3 no controller
answers and none could be started, 130 interrupted
)";

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  auto job = open_job(invocation);
  if (!job.ok()) return report(terminal, job.error());
  if (has_ended(job->view.state)) return report_end(invocation, job->paths, job->view);
  if (is_slurm_job(job->paths, job->id)) {
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
