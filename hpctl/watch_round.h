// SPDX-License-Identifier: Apache-2.0
// One round of `hpctl watch`: the present state of its jobs. Blocks at most for the time limits of
// the calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/watch/job_snapshot.h"
#include "hpctl/job_table.h"

namespace hpctl {

struct WatchRound {
  std::vector<JobSnapshot> jobs;
  std::vector<std::string> notes;  // for people: what is missing, and why
};

// `job`: an id or a name, nullopt = all as list_everywhere() or list_home() has them.
Result<WatchRound> ask_about(const std::optional<std::string>& job, bool everywhere);

// A row of a list, as a detector takes it. Pure.
JobSnapshot snapshot_of(const ListedJob& job);

}  // namespace hpctl
