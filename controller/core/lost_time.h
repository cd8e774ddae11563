// SPDX-License-Identifier: Apache-2.0
// The cost of faults: the time from the last step completed before a fault until the job has
// completed that step again, or one beyond it. Detection, waits for nodes and repeated steps are
// part of it; further faults on the way prolong the same loss. For a command that reports no steps:
// from the fault until all its workers are up.
//
// While the scheduler has the job suspended no time passes here; suspension is counted separately.
// So are the waits of steps (StepWaits), except those that belong to the start or to a loss: these
// have their names already.
//
// The sum covers the job's whole life: a later controller takes it over (JobTotals).
#pragma once

#include "controller/core/transition.h"

namespace hpctl::core {

// The job does not go on, or not from where it was. Nothing new where that was so before.
void begin_loss(const Transition& t, Job& job);
// Likewise, of a job that has come here without workers: nothing was to be noticed.
void begin_waiting(const Transition& t, Job& job);
// It prepares a generation, and this is the next stage of that.
void count_stage(const Transition& t, Job& job, PlanStage stage);
// The first step of a generation is known (for a command that reports none: all its workers are
// up). The rest of a loss repeats steps. The job's first step ends its start.
void begin_steps(const Transition& t, Job& job);
// The job is again where it was, since then.
void end_loss(Job& job, int64_t at_ms);
// A step of the present generation was completed.
void count_step(Job& job, uint64_t step, int64_t at_ms);
// Returns whether that step would end a loss.
bool is_made_good(const Job& job, uint64_t step);
// The waits of the present generation so far, before count_step(). False: that was known.
bool count_waits(Job& job, const StepWaits& waits);
// The scheduler lets the job go on.
void end_suspension(Job& job, int64_t now_ms);
// The job trains again, or ends: it waits for storage no more.
void end_storage_wait(Job& job, int64_t now_ms);
// A job that begins here had a life before.
void continue_totals(const Transition& t, Job& job, const JobTotals& totals);

}  // namespace hpctl::core
