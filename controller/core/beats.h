// SPDX-License-Identifier: Apache-2.0
// How often the nodes of a job send heartbeats (decision 1521).
//
// The short limits for silence need heartbeats each kBeatMs (failure_detector.h), but only while
// training does not visibly go on. While it does, in a job of many nodes
//
//   - kSentinelNodes of them, evenly among the ranks, beat each kBeatMs. They are enough to show
//     that training has stopped, because a step takes every rank
//   - the others beat seldom: all together send kBeatsPerSecond, and each at least kBeatsPerTimeout
//     times within heartbeat_timeout
//
// In each of these cases, all are asked to beat each kBeatMs again, the first at once:
//
//   - no generation trains, or not all of its ranks have reported, or the nodes are suspended
//   - each rank of a sentinel waits in a collective, and for kHurryMs none of them has moved
//   - none has moved for kQuietMs, whatever they do: a verdict on hangs needs all ranks (hang.h)
//   - no sentinel reports
//
// For a command only the first case counts, and an overdue step (failure_detector.h): it shows no
// collectives. When for kCalmMs no pause was longer than kQuietMs, they beat seldom again: asking
// all of them once a second costs less than frequent heartbeats of all.
//
// kHurryMs is more than the gap between two beats: the sentinels may beat all at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job/ids.h"

namespace hpctl::core {

inline constexpr int64_t kBeatMs = 100;         // between two heartbeats of an agent
inline constexpr int64_t kBeatsPerTimeout = 4;  // three may be late or lost
inline constexpr size_t kSentinelNodes = 8;
inline constexpr int64_t kBeatsPerSecond = 480;
inline constexpr int64_t kHurryMs = 150;
inline constexpr int64_t kQuietMs = 5 * kBeatMs;
inline constexpr int64_t kCalmMs = 1'000;

// For the nodes of the job that are no sentinels, from now on.
struct BeatOrder {
  JobId job;
  int64_t interval_ms = kBeatMs;
  std::set<std::string> sentinels;
};

// Of one job.
class BeatWatch {
 public:
  // Another generation: its sentinels are not chosen yet.
  void restart();
  bool is_chosen() const { return is_chosen_; }
  // `nodes`: all that have ranks, in the order of these. No sentinels where all are to beat alike.
  void choose(const std::vector<std::string>& nodes, int64_t timeout_ms);
  const std::set<std::string>& sentinels() const { return names_; }
  // It may have been asked to beat seldom.
  bool may_be_late(const std::string& node) const {
    return !names_.empty() && !names_.contains(node);
  }
  // The interval of the others; 0 = all beat alike. If ranks are compared, none may be reported
  // more often than theirs.
  int64_t seldom_ms() const { return is_seldom_ ? seldom_ms_ : 0; }

  // A beat of a node with ranks. `moved`: any of these since the beat before; `wait`: all do, in a
  // collective.
  void reported(const std::string& node, bool moved, bool wait, int64_t now_ms);
  // `trains`: all ranks of the newest generation are there, and train; `is_command`: what they show
  // are steps alone. Returns the interval of the nodes that are no sentinels where it changes.
  std::optional<int64_t> take_change(bool trains, bool is_command, int64_t now_ms);

 private:
  struct Sentinel {
    int64_t heard_ms = 0;
    int64_t moved_ms = 0;
    bool waits = false;
  };
  bool goes_on(int64_t now_ms) const;

  bool is_chosen_ = false;
  std::set<std::string> names_;
  std::map<std::string, Sentinel> sentinels_;  // those that were heard
  int64_t seldom_ms_ = 0;
  bool is_seldom_ = false;
  int64_t hurried_ms_ = 0;  // when training last did not go on
};

}  // namespace hpctl::core
