// SPDX-License-Identifier: Apache-2.0
// The engine's schedule of a step in a trace: lanes "gather", "compute" and "reduce", a span per
// block. A gather lasts from its beginning to the moment its result was waited for; that it lies
// beside the computation of another block is what prefetching means.
#pragma once

#include <vector>

#include "common/layout/block_layout.h"
#include "trainer/metrics/trace.h"
#include "trainer/parallel/schedule_trace.h"

namespace hpctl {

void add_schedule(Trace& trace, const ScheduleTrace& schedule, const std::vector<Block>& blocks);

}  // namespace hpctl
