// SPDX-License-Identifier: Apache-2.0
// Whether a plan of faults suits a job, before the first fault.
#pragma once

#include <string>

#include "common/job/job_spec.h"
#include "controller/publish/status_files.h"
#include "hpctl/chaos_plan.h"

namespace hpctl {

// Why the plan does not fit to the job; "" = it does. `spec` may be null: not known here; then the
// controller says of each fault alone whether the job can have it.
std::string find_misfit(const ChaosPlan& plan, const JobView& job, const JobSpec* spec);

// Likewise, of a job that is about to be submitted; `local`: to virtual nodes of this machine.
std::string find_misfit(const ChaosPlan& plan, const JobSpec& spec, bool local);

}  // namespace hpctl
