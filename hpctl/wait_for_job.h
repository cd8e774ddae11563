// SPDX-License-Identifier: Apache-2.0
// Waiting for a job to end, through everything that may happen meanwhile: a local controller that
// dies is started again (any client that waits may do so; the lock file picks one), the controllers
// of a Slurm job are followed, through the queue and requeues; a file system that does not answer
// is waited for; an interrupt ends the waiting and not the job.
#pragma once

#include <memory>

#include "hpctl/command_line.h"
#include "hpctl/controller_client.h"
#include "hpctl/progress_display.h"

namespace hpctl {

struct WaitResult {
  JobView job;               // as last seen
  bool interrupted = false;  // SIGINT or SIGTERM came first
};

// `display` may be null: nothing is shown. kUnavailable when neither a controller nor Slurm can be
// had any more.
Result<WaitResult> wait_for_job(const HomePaths& paths, std::unique_ptr<JobSource> source,
                                JobId job, ProgressDisplay* display);

// The common end of `submit --wait` and `wait`: progress on the terminal, at the end a summary or
// with --json the last status. Returns the exit status.
int wait_and_report(const Invocation& invocation, const HomePaths& paths,
                    std::unique_ptr<JobSource> source, JobId job);
int report_end(const Invocation& invocation, const HomePaths& paths, const JobView& job);

}  // namespace hpctl
