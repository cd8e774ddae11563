// SPDX-License-Identifier: Apache-2.0
// Judges a schedule table before anything runs it. Pure. A table is valid if
//  - each stage is on one rank, and has each micro-batch once: F, and then B or I and W;
//  - gradients of a stage are accumulated in ascending order of micro-batches;
//  - with communication: each neighbouring pair of stages on two ranks has its SEND and RECV once,
//    data are there before their use, and both ends of an edge have the same order;
//  - UNSHARD and RESHARD take turns, a stage computes F, B and I only while it is unsharded, and
//    REDUCE_GRAD is its last use of gradients. A table may leave these out altogether;
//  - every rank reaches the end of its row when sends never wait and receives do.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"
#include "trainer/schedule/action.h"

namespace hpctl {

struct ScheduleFacts {
  int32_t micro_batches = 0;
  std::vector<int32_t> rank_of_stage;
  bool has_communication = false;
  // Of each rank: the most stages and micro-batches with a forward and without the last backward.
  std::vector<int32_t> peak_live;
};

// kInvalidArgument with row, column and cell, rows and columns counted from 1.
Result<ScheduleFacts> validate_schedule(const ScheduleTable& table);

}  // namespace hpctl
