// SPDX-License-Identifier: Apache-2.0
// JOBDIR/start-failure: why no controller of a job serves, for those whom none answers. One line of
// text, written by a controller whose start failed, or by the batch script while it waits for
// storage. The next controller that serves removes it, and the batch script when it begins. Best
// effort; safe from any thread, but the directory is shared and may block.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// `node`: where it was to run.
Outcome note_start_failure(const std::string& job_dir, const std::string& node,
                           const std::string& reason);
Outcome forget_start_failure(const std::string& job_dir);
// A sentence with node, time and reason; "" = the newest start did not fail.
std::string read_start_failure(const std::string& job_dir);

}  // namespace hpctl
