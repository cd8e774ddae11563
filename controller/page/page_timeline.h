// SPDX-License-Identifier: Apache-2.0
// What a job's history says for the timeline and the plots of the status page: which part of its
// time (common/job/time_account.h) began when, and the faults, checkpoints and ends that the plots
// mark. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/engine/store.h"

namespace hpctl {

// Lasts until the next one begins.
struct TimelineSegment {
  std::string part;  // start | train | decide | wait | restart | suspended | ended
  int64_t from_ms = 0;
  std::string cause;         // one line for people
  uint64_t regain_step = 0;  // of "train" after a fault: steps up to this one are repetitions
};

struct TimelineMark {
  std::string kind;  // fault | checkpoint
  int64_t at_ms = 0;
  uint64_t step = 0;
  std::string text;
};

struct PageTimeline {
  static constexpr size_t kMostSegments = 400;  // the newest
  static constexpr size_t kMostMarks = 300;     // the newest of each kind
  std::vector<TimelineSegment> segments;        // ascending in time
  std::vector<TimelineMark> marks;              // likewise
};

PageTimeline timeline_of(const std::vector<StoredEntry>& history);

}  // namespace hpctl
