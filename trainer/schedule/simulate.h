// SPDX-License-Identifier: Apache-2.0
// How long a schedule takes, for given times of its parts. Pure. Times are in any one unit.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/result.h"
#include "trainer/schedule/action.h"

namespace hpctl {

struct StageTimes {
  int64_t forward = 1;
  int64_t input = 1;   // I
  int64_t weight = 1;  // W; B takes both
  int64_t send = 0;    // from the send to the arrival; the sender does not wait
};

struct RankTime {
  int64_t busy = 0;       // computing
  int64_t bubble = 0;     // the rest of the makespan
  int32_t peak_live = 0;  // as in ScheduleFacts
};

struct ScheduleTime {
  int64_t makespan = 0;
  std::vector<RankTime> ranks;
};

// What an action of a rank takes beyond its StageTimes, >= 0.
using ExtraTime = std::function<int64_t(int32_t rank, const Action& action)>;

// The actions of a rank run in order and receives wait. In a compute-only table an action waits for
// the results of other ranks itself. Collectives take only what `extra` gives them. Returns the
// error of validate_schedule().
Result<ScheduleTime> simulate_schedule(const ScheduleTable& table, const StageTimes& times,
                                       const ExtraTime& extra = {});

}  // namespace hpctl
