// SPDX-License-Identifier: Apache-2.0
// The machines that a job has evidence against, as records for their lemon score
// (common/job/node_record.h, decision 1605).
//
// A fault on a node is not evidence: a program that exits, an exception, a hook that fails and a
// single hang come from the program as often as from the machine. Evidence is
//
//   hardware   a verdict on the hardware
//   lost       the node fell silent, its machine did not answer a probe, and within
//              kExcusedWithinMs neither the scheduler nor an administrator turned out to have
//              taken it
//   hang       the newest faults of the job were hangs of this node's workers, the job left the
//              node, and its ranks trained for kFollowedMs elsewhere without a fault: the fault
//              followed the machine and not the rank
//   slow       the job left the node because it was slow, and nothing is slow since: the same
#pragma once

#include <vector>

#include "common/job/node_record.h"
#include "controller/core/core.h"

namespace hpctl::core {

inline constexpr int64_t kExcusedWithinMs = 60'000;
inline constexpr int64_t kFollowedMs = 600'000;

// All records that follow from the job's rows now, with keys that stay the same, so a repeated
// caller can skip those that it has. A job with debug.chaos gives none: its faults are injected.
// The longer a caller waits, the more evidence there is, so it asks again from time to time.
std::vector<NodeRecord> blame_of(const State& state, const Job& job, int64_t wall_ms);

}  // namespace hpctl::core
