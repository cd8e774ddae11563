// SPDX-License-Identifier: Apache-2.0
// Whom a job blames, as records for the lemon score of machines (common/base/node_record.h).
#pragma once

#include <vector>

#include "common/base/node_record.h"
#include "controller/core/core.h"

namespace hpctl::core {

// All that the job's rows say now, with keys that stay the same: who asks repeatedly leaves out
// what he has. Of a job with debug.chaos nothing: its faults are made on purpose. The order of a
// person is no fault, and neither is a node that the scheduler took away.
std::vector<NodeRecord> blame_of(const State& state, const Job& job, int64_t wall_ms);

}  // namespace hpctl::core
