// SPDX-License-Identifier: Apache-2.0
// Whom a job blames, as records for the lemon score of machines (common/base/node_record.h).
#pragma once

#include <vector>

#include "common/base/node_record.h"
#include "controller/core/core.h"

namespace hpctl::core {

// All records that follow from the job's rows now, with keys that stay the same, so a repeated
// caller can skip those that it has. A job with debug.chaos gives none: its faults are injected.
// The order of a user is no fault, and neither is a node that the scheduler took away.
std::vector<NodeRecord> blame_of(const State& state, const Job& job, int64_t wall_ms);

}  // namespace hpctl::core
