// SPDX-License-Identifier: Apache-2.0
// Where the answers about a job come from when one source is not enough. A controller knows the
// history since it took the job over; what was before, in earlier controllers and before a requeue,
// lies in the job's directory.
#pragma once

#include <functional>
#include <memory>

#include "hpctl/job_source.h"

namespace hpctl {

// `live` answers; `record` adds the events before its first.
std::unique_ptr<JobSource> join_lives(std::unique_ptr<JobSource> live,
                                      std::unique_ptr<JobSource> record);

// `live` answers until it fails with kUnavailable: its controller has ended, or did not answer
// within the deadline of a call. From then on, the source that `open_record` returns answers; its
// notice() tells which of the two it was.
std::unique_ptr<JobSource> until_it_ends(std::unique_ptr<JobSource> live,
                                         std::function<std::unique_ptr<JobSource>()> open_record);

}  // namespace hpctl
