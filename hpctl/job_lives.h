// SPDX-License-Identifier: Apache-2.0
// A job of Slurm while its controller answers. A controller knows the history since it took the job
// over; what was before, in earlier controllers and before a requeue, lies in the job's directory.
#pragma once

#include <memory>

#include "hpctl/job_source.h"

namespace hpctl {

// `live` answers; `record` adds the events before its first.
std::unique_ptr<JobSource> join_lives(std::unique_ptr<JobSource> live,
                                      std::unique_ptr<JobSource> record);

}  // namespace hpctl
