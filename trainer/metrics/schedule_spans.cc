// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics/schedule_spans.h"

namespace hpctl {

void add_schedule(Trace& trace, const ScheduleTrace& schedule, const std::vector<Block>& blocks) {
  std::vector<Trace::TimePoint> begun(blocks.size());
  for (const ScheduleSpan& span : schedule) {
    const std::string& block = blocks[span.block].name;
    switch (span.event) {
      case ScheduleEvent::kGatherBegun:
        begun[span.block] = span.begin;
        break;
      case ScheduleEvent::kGathered:
        trace.add("gather", "gather " + block, begun[span.block], span.end);
        break;
      case ScheduleEvent::kForward:
        trace.add("compute", "forward " + block, span.begin, span.end);
        break;
      case ScheduleEvent::kBackward:
        trace.add("compute", "backward " + block, span.begin, span.end);
        break;
      case ScheduleEvent::kReduce:
        trace.add("reduce", "reduce " + block, span.begin, span.end);
        break;
      case ScheduleEvent::kReleased:
        break;
    }
  }
}

}  // namespace hpctl
