// SPDX-License-Identifier: Apache-2.0
// Carries a plan of faults out on a running job, one at a time: the next one waits until the job is
// as before. Each answering controller may die meanwhile; the next one is used then.
#pragma once

#include <functional>

#include "hpctl/chaos_plan.h"
#include "hpctl/chaos_report.h"
#include "hpctl/command_line.h"
#include "hpctl/open_job.h"

namespace hpctl {

enum class ChaosStart {
  kRunning,    // somebody must answer for the job
  kSubmitted,  // it may be in a queue, for however long: what comes begins when it runs
};

// `tell` gets every fault when its result is known. An error: nothing was injected, because the job
// does not allow faults or no controller answers. SIGINT and SIGTERM end the run with the results
// so far.
Result<ChaosReport> run_chaos(const OpenJob& job, const ChaosPlan& plan, ChaosStart start,
                              const std::function<void(const FaultResult&)>& tell);

// The same on the terminal: each fault, and the totals; or with --json one object. Returns the exit
// status.
int run_chaos_and_report(const Invocation& invocation, const OpenJob& job, const ChaosPlan& plan,
                         ChaosStart start);

}  // namespace hpctl
