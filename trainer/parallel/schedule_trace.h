// SPDX-License-Identifier: Apache-2.0
// The activities of a rank's step thread over time: for tests of the schedule and for traces that
// people read.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace hpctl {

enum class ScheduleEvent : unsigned char {
  kGatherBegun,
  kGathered,
  kReleased,
  kForward,   // computation
  kBackward,  // computation, with recomputation where activations were not kept
  kReduce,    // hand-over of the gradient: waits for earlier reductions and begins this one
};

struct ScheduleSpan {
  ScheduleEvent event;
  size_t block;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;  // = begin for what takes no time
};

using ScheduleTrace = std::vector<ScheduleSpan>;

}  // namespace hpctl
