// SPDX-License-Identifier: Apache-2.0
// The logs of a job's ranks: which there are, and their last lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "common/job/paths.h"

namespace hpctl {

// Ascending; empty where there is no log, or no directory of logs.
std::vector<int64_t> ranks_with_logs(const HomePaths& paths, JobId job);

// The last lines of all ranks, about `most` together, each with its rank: "rank 3 | step 12".
std::vector<std::string> last_log_lines(const HomePaths& paths, JobId job, size_t most);

}  // namespace hpctl
