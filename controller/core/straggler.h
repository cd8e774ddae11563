// SPDX-License-Identifier: Apache-2.0
// Whether a node is persistently slower than the others, from the duration of each rank's own part
// of a step: the passes, without the waiting for collectives. A step takes every rank, so all wait
// for the slowest in every step, and their own times show which one it is.
//
// Ranks are compared in rounds. A round takes kRoundSteps steps of each rank, from its agent's
// reports, and compares medians: a single slow step blames no rank. In a round a rank is slow if
// all of this holds:
//
//   - its median is at least kSlowRatio times the typical one, which is the lower median of all
//     ranks' medians: half of the ranks may be slow, if they are one node of two
//   - it is further from the typical one than the others are from it: kSlowSpreads times the
//     distance of a quarter of all below it, which are not slow even if half of the ranks are; and
//     kSlowSpreads times the differences between the steps of a typical rank, by which its own
//     median may be off. The first distance decides if all ranks differ, the second if there are
//     few
//   - three quarters of its steps took longer than three quarters of the typical rank's, so one or
//     two long steps are not enough
//   - its extra time is worth kWorthShare of the round's shortest step, since a step may be long
//     for other reasons: less does not slow the others down
//
// A rank that was slow in kSlowRounds rounds in a row is named with its node: the rank if it is
// one, otherwise the node. That ends when the node's ranks were all below kOverRatio in as many
// rounds in a row; between the two nothing changes.
//
// No rank is named in three cases: among fewer than kFewestRanks ranks, which show no usual time;
// in the first kWarmUpSteps steps of a generation, in which memory is touched for the first time;
// and if more than a quarter of the nodes, and more than one, are slow. Then the work is uneven, or
// a shared part is slow. At most kMostStragglers are named, the slowest.
//
// A rank without reports does not block a round for ever: a round ends without it when another rank
// has reported twice as many steps as needed. No clock: the duration of steps makes a round long or
// short.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "controller/core/types.h"

namespace hpctl::core {

inline constexpr size_t kRoundSteps = 5;
inline constexpr int kSlowRounds = 3;
inline constexpr uint64_t kWarmUpSteps = 5;
inline constexpr size_t kFewestRanks = 3;
inline constexpr size_t kMostStragglers = 8;
inline constexpr double kSlowRatio = 1.3;
inline constexpr double kOverRatio = 1.15;
inline constexpr double kSlowSpreads = 5;
inline constexpr double kWorthShare = 0.05;

// The last report of a rank about a step that it has completed.
struct RankStep {
  Rank rank;
  uint64_t step = 0;
  uint64_t compute_ns = 0;  // 0 = not known
  uint64_t step_ns = 0;
};

struct StragglerNews {
  std::vector<Straggler> found;
  std::vector<std::string> over;  // nodes
};

// Of one generation.
class StragglerWatch {
 public:
  StragglerWatch() = default;
  // `known`: found already, by a controller before this one.
  StragglerWatch(Generation generation, uint64_t start_step, int32_t world_size,
                 const std::vector<Straggler>& known);

  Generation generation() const { return generation_; }
  // A repeated report is ignored. Precondition: 0 <= rank < world_size.
  void add(const RankStep& seen, const std::string& node);
  // Returns whether a round is over, which judge() then ends.
  bool is_round_over() const;
  StragglerNews judge();

 private:
  struct RankRow {
    std::string node;
    uint64_t step = 0;                             // newest that was told
    uint64_t step_ns = 0;                          // of the round's shortest
    std::array<uint64_t, kRoundSteps> taken_ns{};  // of the round
    size_t told = 0;                               // steps of the round, also those not kept
    int slow_rounds = 0;                           // in a row
    bool is_full() const { return told >= kRoundSteps; }
  };
  struct Round;
  struct NodePace;

  Round measure() const;
  std::map<std::string, NodePace> count_rounds(const Round& round);
  std::vector<Straggler> find_new(const Round& round, const std::map<std::string, NodePace>& nodes);
  Straggler tell(const Round& round, const std::string& name, const NodePace& node) const;
  std::vector<std::string> find_over(const std::map<std::string, NodePace>& nodes);

  Generation generation_;
  uint64_t start_step_ = 0;
  std::vector<RankRow> ranks_;
  size_t full_ = 0;                   // ranks that have told enough of the round
  size_t most_told_ = 0;              // by one rank
  std::map<std::string, int> named_;  // nodes; rounds in a row in which they were as the others
};

}  // namespace hpctl::core
