// SPDX-License-Identifier: Apache-2.0
// hpctl resume: submits a job that has ended again, to go on from its newest checkpoint.

#include "hpctl/exit_codes.h"
#include "hpctl/job_file.h"
#include "hpctl/open_job.h"
#include "hpctl/resumed_job.h"
#include "hpctl/submit_directory.h"
#include "hpctl/submit_job.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace resume_parts {
namespace {

constexpr const char* kHelp = R"(
Submits the job file that hpctl recorded for JOB again, as a new job that uses the same checkpoint
directory and goes on from its newest checkpoint. It runs where JOB ran: on this machine, or through
Slurm (slurm.dependency and slurm.begin no longer count). A line on standard error names the
checkpoint. JOB must have ended, and no other job may have gone on in its directory.

Examples:
  hpctl resume quickstart
  hpctl resume 3 --set workload.train.steps=200 --wait

Options:
  --set KEY=VALUE
             use VALUE in place of the recorded value of KEY, as `hpctl submit` does; may be
             repeated
  --name NAME
             call the new job NAME
  --wait     show progress until the job has ended
  --dry-run  submit nothing; print the job file
  --json     as `hpctl submit --json`

Exit codes: 0 submitted (with --wait: finished), 1 no such job, it lives, or it has no step left
(with --wait: failed or cancelled), 2 a wrong value, 3 no controller or scheduler answers, 130
interrupted while waiting
)";

// A job of another home would come back in this one.
Outcome check_is_of_this_home(const OpenJob& job) {
  HP_TRY_ASSIGN(const HomePaths own, home_from_environment());
  if (job.paths.home() == own.home()) return Ok{};
  return Error{ErrorCode::kFailedPrecondition,
               "job " + to_string(job.id) +
                   " is of another home; resume it with HPCTL_HOME=" + job.paths.home()};
}

Result<JobSpec> recorded_spec(const OpenJob& job) {
  HP_TRY(check_is_of_this_home(job));
  return spec_to_resume(job.paths, job.view);
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto given = given_values(invocation);
  if (!given.ok()) return report_usage(terminal, "resume", given.error().message);
  const auto job = open_job(invocation);
  if (!job.ok()) return report(terminal, job.error());
  const auto recorded = recorded_spec(*job);
  if (!recorded.ok()) return report(terminal, recorded.error());
  const std::string words = "job " + to_string(job->id) + " " + printable(job->view.name);
  const auto spec = change_job(terminal, *recorded, words, *given);
  if (!spec) return kExitUsage;
  const auto start = describe_start(*spec);
  if (!start.ok()) {
    return report(terminal, {start.error().code, words + ": " + start.error().message});
  }
  terminal.err << "hpctl: " << words << " (" << job->view.state << ") is submitted again; "
               << printable(*start) << std::endl;
  if (!is_slurm_job(job->paths, job->id)) invocation.options["--local"] = "";
  return submit_job(invocation, *spec, job->paths.job_spec(job->id));
}

}  // namespace
}  // namespace resume_parts

Verb resume_verb() {
  return {"resume",
          "JOB [--set KEY=VALUE] [--name NAME] [--wait] [--dry-run]",
          "submit a job that has ended again, to go on from its checkpoint",
          resume_parts::kHelp,
          1,
          1,
          {{"--set", nullptr, "KEY=VALUE", true},
           {"--name", nullptr, "NAME"},
           {"--wait"},
           {"--dry-run"}},
          resume_parts::run};
}

}  // namespace hpctl
