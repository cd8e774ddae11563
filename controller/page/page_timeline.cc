// SPDX-License-Identifier: Apache-2.0
#include "controller/page/page_timeline.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/job/lineage.h"

namespace hpctl {
namespace {

// nullptr = an event that begins no part.
const char* part_begun_by(const std::string& type) {
  static constexpr std::array<std::pair<const char*, const char*>, 15> kParts = {
      {{"JobSubmitted", "start"},
       {"JobRunning", "train"},
       {"JobRecovering", "decide"},
       {"JobGrows", "decide"},
       {"WaitNodes", "wait"},
       {"BackOff", "wait"},
       {"Retry", "wait"},
       {"RequeueJob", "wait"},
       {"JobRequeued", "wait"},
       {"JobAdopted", "wait"},
       {"StartWorkers", "restart"},
       {"JobFinished", "ended"},
       {"JobFailed", "ended"},
       {"JobCancelled", "ended"},
       {"JobTimeout", "ended"}}};
  for (const auto& [event, part] : kParts) {
    if (type == event) return part;
  }
  return nullptr;
}

// "checkpoint step-30.g1 is durable"
std::optional<CheckpointRef> checkpoint_in(const std::string& cause) {
  const size_t begin = cause.find("step-");
  if (begin == std::string::npos) return std::nullopt;
  return parse_checkpoint_name(cause.substr(begin, cause.find(' ', begin) - begin));
}

class TimelineMaker {
 public:
  void take(const StoredEntry& stored) {
    const core::LogEntry& entry = stored.entry;
    if (entry.type == "SuspensionChanged") return suspend(stored);
    if (entry.type == "JobRecovering") {
      furthest_step_ = std::max(furthest_step_, entry.step);
      marks_.push_back({"fault", stored.wall_ms, entry.step, entry.cause});
    } else if (entry.type == "CheckpointCommitted") {
      if (const auto ref = checkpoint_in(entry.cause)) {
        marks_.push_back({"checkpoint", stored.wall_ms, ref->step, ref->name()});
      }
    }
    if (const char* part = part_begun_by(entry.type)) begin(part, stored);
  }

  PageTimeline made() {
    PageTimeline timeline{std::move(segments_), {}};
    if (timeline.segments.size() > PageTimeline::kMostSegments) {
      timeline.segments.erase(timeline.segments.begin(),
                              timeline.segments.end() - PageTimeline::kMostSegments);
    }
    for (const char* kind : {"fault", "checkpoint"}) {
      auto left = static_cast<size_t>(
          std::count_if(marks_.begin(), marks_.end(),
                        [kind](const TimelineMark& mark) { return mark.kind == kind; }));
      for (const TimelineMark& mark : marks_) {
        if (mark.kind == kind && left-- <= PageTimeline::kMostMarks) timeline.marks.push_back(mark);
      }
    }
    std::stable_sort(
        timeline.marks.begin(), timeline.marks.end(),
        [](const TimelineMark& a, const TimelineMark& b) { return a.at_ms < b.at_ms; });
    return timeline;
  }

 private:
  // Nothing is prepared before the first step but the start.
  void begin(const std::string& part, const StoredEntry& stored) {
    const bool is_start = !segments_.empty() && segments_.back().part == "start";
    if (is_start && (part == "wait" || part == "restart" || part == "decide")) return;
    if (!segments_.empty() && segments_.back().part == part) return;
    const uint64_t regain = part == "train" ? std::exchange(furthest_step_, 0) : 0;
    segments_.push_back({part, stored.wall_ms, stored.entry.cause, regain});
  }

  // The part that a suspension interrupts goes on after it.
  void suspend(const StoredEntry& stored) {
    if (segments_.empty()) return;
    const bool goes_on = stored.entry.cause.find("lets the job go on") != std::string::npos;
    if (segments_.back().part != "suspended") {
      if (goes_on) return;  // something else has begun meanwhile, such as a fault
      interrupted_ = segments_.back();
      segments_.push_back({"suspended", stored.wall_ms, stored.entry.cause, 0});
    } else {
      interrupted_.from_ms = stored.wall_ms;
      segments_.push_back(interrupted_);
    }
  }

  std::vector<TimelineSegment> segments_;
  std::vector<TimelineMark> marks_;
  TimelineSegment interrupted_;
  uint64_t furthest_step_ = 0;
};

}  // namespace

PageTimeline timeline_of(const std::vector<StoredEntry>& history) {
  TimelineMaker maker;
  for (const StoredEntry& stored : history) maker.take(stored);
  return maker.made();
}

}  // namespace hpctl
