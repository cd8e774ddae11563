// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of a job hang, and which are to blame, from the last report of each. A hang
// means that no step is completed, and that not all ranks go on to another collective (as they do
// in evaluations and in skipped steps, fp16's overflows). The limit depends on the other facts. In
// this order:
//
//   recovery.hang_timeout    what is seen                                  it hangs after more than
//   auto                     it is plain who hangs                         5 s, 3 slowest steps
//   auto                     processes are stopped (SIGSTOP), not all      1 s
//   auto                     the built-in trainer                          60 s, 3 median steps
//   auto                     a command that tells its steps                600 s, 3 median steps
//   set                                                                    what was set
//
// The longer of two limits counts, and in the last three lines 600 s at least while a rank is
// saving. The floor of 60 s must cover an evaluation's tail, a slow file server and every other
// silent phase; a command does not show whether it saves, evaluates or hangs. If some processes are
// stopped and others are not, the job hangs for sure. If all are stopped, that was on purpose.
//
// It is plain who hangs if the ranks of one node compute, and all others wait for them. That means:
// all ranks are known and in the step loop; those that began the fewest collectives are on one
// node, in the passes of a step; their processes run or sleep (a process that waits for the kernel
// may wait for a file, and a traced one is in a debugger); every other rank began more and waits
// inside one. Then 5 s are enough: between two collectives lies a part of a step, and a busy
// machine takes away milliseconds at a time. A pause of the machine takes seconds, but it stops the
// agent's reports too. So only time with reports of each rank counts (RankSight::still_ms). Each
// hang found this way doubles the 5 s for an hour: a node that was only slow is not blamed often
// enough for its quarantine.
//
// A report from before the others stopped proves nothing: the rank may have gone on with them. Its
// node is silent, which core/failure_detector.h judges. Here such a rank counts as one without a
// report, and if all ranks are like that, none hangs.
//
// If a rank reports that it waits for storage, no rank hangs: it gives up by itself.
//
// A verdict may blame no rank. If the ranks are all alike, the cause is a shared part (the network,
// the storage, the program), and blame would quarantine a node for nothing. Otherwise the suspects
// are, in this order: ranks whose process is stopped; ranks that began fewer collectives than
// others, which wait for them inside one; ranks that wait uninterruptibly in the kernel. A command
// shows no collectives; its suspects are ranks that report steps and have completed fewer than
// others. If the ranks tell the collectives of each group, the second of these is found by who
// waits for whom (core/waits_for.h), and totals are not compared; ranks that wait for each other in
// a cycle are named without blame. Blame falls only on one node: suspects on several nodes are
// named without blame. Several suspects on one node are named, and the node is blamed: any of them
// may be innocent, for example one that waits for the other inside a collective of only these two.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "common/worker/worker_abi.h"
#include "controller/core/waits_for.h"

namespace hpctl::core {

inline constexpr int64_t kHangFloorMs = 60'000;
inline constexpr int64_t kCommandHangFloorMs = 600'000;
inline constexpr int64_t kStoppedLimitMs = 1'000;
inline constexpr int64_t kSavingLimitMs = 600'000;
inline constexpr int64_t kPlainHangFloorMs = 5'000;
inline constexpr int64_t kPlainHangMemoryMs = 3'600'000;
inline constexpr int64_t kMostPerReportMs = 500;  // that a report adds to RankSight::still_ms

// For a job, over all generations: the number of hangs that were found because it was plain who
// hangs.
class PlainHangs {
 public:
  int count(int64_t now_ms) const { return now_ms - newest_ms_ >= kPlainHangMemoryMs ? 0 : count_; }
  void add(int64_t now_ms) {
    count_ = count(now_ms) + 1;
    newest_ms_ = now_ms;
  }

 private:
  int count_ = 0;  // each within kPlainHangMemoryMs of the one before
  int64_t newest_ms_ = 0;
};

// The last report of a rank.
struct RankSight {
  Rank rank;
  std::string node;
  uint64_t pid = 0;
  uint64_t step = 0;              // completed; 0 = none is known
  uint64_t collective = 0;        // how many it began; 0 in all ranks: none is known
  uint32_t open_collectives = 0;  // begun and not completed
  WorkerPhase phase = WorkerPhase::kStarting;
  bool computing = false;     // in the passes of a step
  std::string process_state;  // of /proc/PID/stat; "" = not known
  int64_t still_ms = 0;       // reported as it is for so long; pauses of the reports count little
  int64_t unheard_ms = 0;     // since its last report
  bool waits_for_storage = false;  // in the middle of a step, and tries again by itself
};

// A generation that has completed a step. Before that the core has another limit.
struct JobSight {
  bool trains = false;   // the built-in trainer; otherwise a command
  int64_t limit_ms = 0;  // recovery.hang_timeout; 0 = auto
  int32_t world_size = 0;
  uint64_t step = 0;           // the newest one that was completed
  int64_t still_ms = 0;        // no step was completed, nor did all ranks begin another collective
  int64_t median_step_ns = 0;  // of the recent ones; 0 = none was timed
  int64_t slowest_step_ns = 0;
  int plain_hangs = 0;           // PlainHangs::count()
  std::vector<RankSight> ranks;  // in ascending order; who has not reported is missing
  // Of a mesh in which ranks may begin different collectives; empty = the totals tell all.
  std::vector<GroupSight> groups;
};

struct HangVerdict {
  enum class Kind { kNothing, kHangs, kHangsPlainly };
  Kind kind = Kind::kNothing;
  // Unless it is kNothing:
  std::string node;      // "" = nobody
  Rank rank{-1};         // -1 = nobody, or several of the node
  std::string evidence;  // for people
};

HangVerdict judge_hang(JobSight job);

// Returns whether judge_hang() may find anything, whatever the ranks report. `job` needs none of
// the ranks, of which there may be very many. `quiet_ms`: since the newest change in the report of
// one of them. `any_stopped`: the process of one of them is stopped.
bool may_hang(const JobSight& job, int64_t quiet_ms, bool any_stopped);

// Lower case name; "starting" for numbers we do not know.
std::string phase_name(WorkerPhase phase);

}  // namespace hpctl::core
