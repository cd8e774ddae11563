// SPDX-License-Identifier: Apache-2.0
// Slurm ends the processes of a job with SIGTERM for any reason: the warning before the time limit,
// a requeue, scancel, preemption. The right reaction differs, so Slurm is asked for the reason.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "common/slurm/slurm_messages.h"

namespace hpctl {

enum class TerminationCause { kRequeued, kTimeLimit, kPreempted, kSomebody };

// Right after such a signal.
TerminationCause termination_cause(const SlurmJob& job, const SlurmSpec& spec, int64_t wall_ms);
// Asks Slurm, for at most some seconds; kSomebody when it does not answer.
TerminationCause ask_termination_cause(JobId job, const SlurmSpec& spec);

// Slurm preempts the job: when its grace time is over, it requeues or cancels the job. The batch
// script waits for that, because a script that ends first ends the job (`job_dir`/preempted).
Outcome note_preemption(const std::string& job_dir, uint64_t restart_count);
Result<bool> is_preempted(const std::string& job_dir, uint64_t restart_count);

// A person cancelled the job: the batch script cancels its Slurm job (`job_dir`/cancelled), so that
// Slurm's accounting says CANCELLED and not FAILED. Before the verdict.
Outcome note_cancellation(const std::string& job_dir, uint64_t restart_count);

// The reason of a job that ends so, and how it can go on. `own_dir` is where its checkpoints are
// when its file names no directory.
std::string last_words(TerminationCause why, const JobSpec& spec, const std::string& own_dir);

}  // namespace hpctl
