// SPDX-License-Identifier: Apache-2.0
// A watcher's data about one job at one moment: its summary, and the fields that only a view of it
// has (snapshot_of() of controller/publish/status_files.h). Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/job/job_summary.h"

namespace hpctl {

// A worker that runs in a generation that is over.
struct OrphanedRank {
  int32_t rank = 0;
  std::string node;
  uint64_t generation = 0;
};

struct JobSnapshot {
  JobSummary summary;
  std::string user;                   // name of the owner; "" = not known
  double loss = NAN;                  // NaN: not finite, or there is none, or it is not told
  std::vector<OrphanedRank> orphans;  // in the order of ranks
  // Its controller has not answered for so long, and the rest is what it said last; 0 = it answers.
  int64_t silent_ms = 0;
  // The path of its directory, where that was deleted; "" = it is there, or that is not known.
  std::string lost_directory = {};
  // What is wrong with its checkpoint directory, as seen from here; "" = nothing, or not looked at.
  std::string saves_problem = {};
};

}  // namespace hpctl
