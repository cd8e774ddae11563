// SPDX-License-Identifier: Apache-2.0
// The known pipeline schedules as compute-only tables, for any number of ranks, stages and
// micro-batches. Every stage takes its micro-batches in ascending order, forwards and backwards, so
// gradients are accumulated in one order whatever the schedule. Pure.
//
//   schedule         stages of a rank   backward   live tapes at most
//   GPipe            1                  B          m
//   1F1B             1                  B          p - rank
//   Interleaved1F1B  v, in loops        B          (v-1)g + 2(p - rank) - 1
//   ZBH1             1                  I, W       p
//   ZBVZeroBubble    2, in a V          I, W       2p
//
// g is the size of the largest group, p where p divides m.
//
// In loops, stage s is on rank s % p. In a V, rank r has the stages r and 2p-1-r, so the first and
// the last stage share rank 0. A live tape is a stage and a micro-batch whose forward has run and
// whose last backward has not.
//
// With F, I and W of one unit each, ZBVZeroBubble leaves rank 0 idle for p-1 units at best, and for
// less than half of 1F1B's bubble otherwise.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"
#include "trainer/schedule/action.h"

namespace hpctl {

struct ScheduleShape {
  int32_t ranks = 1;            // p
  int32_t stages_per_rank = 1;  // v
  int32_t micro_batches = 1;    // m; may be less than the ranks
};

// `name` is a name of the table above. kInvalidArgument where it is unknown, where a number is not
// positive, or where the schedule cannot have so many stages per rank.
Result<ScheduleTable> generate_schedule(std::string_view name, const ScheduleShape& shape);

}  // namespace hpctl
