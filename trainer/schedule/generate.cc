// SPDX-License-Identifier: Apache-2.0
// ZBVZeroBubble is the record of a simulated run in which F, I and W take one unit each: every rank
// takes the most urgent action whose input is there and for which it has memory. A table made from
// a run that ended can always be run. The other schedules have closed forms.
#include "trainer/schedule/generate.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace hpctl {
namespace {

ScheduleTable gpipe_table(const ScheduleShape& shape) {
  ScheduleTable table(static_cast<size_t>(shape.ranks));
  for (int32_t rank = 0; rank < shape.ranks; ++rank) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int32_t micro = 0; micro < shape.micro_batches; ++micro) {
        table[static_cast<size_t>(rank)].push_back({kind, rank, micro});
      }
    }
  }
  return table;
}

// Micro-batches go in groups through all stages of a rank. A group smaller than p would make the
// ranks wait for each other for ever, so the micro-batches are spread evenly over m / p groups, the
// larger groups first.
int32_t group_count(const ScheduleShape& shape) {
  return std::max(1, shape.micro_batches / shape.ranks);
}

int32_t group_size(const ScheduleShape& shape, int32_t group) {
  const int32_t groups = group_count(shape);
  return shape.micro_batches / groups + (group < shape.micro_batches % groups ? 1 : 0);
}

// All forwards, or all backwards, of a rank in their order.
std::vector<Action> interleaved_order(const ScheduleShape& shape, int32_t rank, bool forward) {
  std::vector<Action> order;
  const int32_t last = shape.stages_per_rank - 1;
  for (int32_t group = 0, first = 0; group < group_count(shape); ++group) {
    const int32_t size = group_size(shape, group);
    for (int32_t i = 0; i < size * shape.stages_per_rank; ++i) {
      const int32_t chunk = forward ? i / size : last - i / size;
      order.push_back({forward ? ActionKind::kForward : ActionKind::kBackward,
                       chunk * shape.ranks + rank, first + i % size});
    }
    first += size;
  }
  return order;
}

// Warm-up forwards, then one forward and one backward in turn, then the remaining backwards. With
// one stage per rank this is 1F1B.
ScheduleTable interleaved_table(const ScheduleShape& shape) {
  const int32_t total = shape.stages_per_rank * shape.micro_batches;
  ScheduleTable table(static_cast<size_t>(shape.ranks));
  for (int32_t rank = 0; rank < shape.ranks; ++rank) {
    const int32_t behind = shape.ranks - 1 - rank;
    const int32_t ahead = shape.stages_per_rank == 1
                              ? behind
                              : (shape.stages_per_rank - 1) * group_size(shape, 0) + 2 * behind;
    const int32_t warm_up = std::min(total, ahead);
    const std::vector<Action> forwards = interleaved_order(shape, rank, true);
    const std::vector<Action> backwards = interleaved_order(shape, rank, false);
    auto& row = table[static_cast<size_t>(rank)];
    for (int32_t i = 0; i < total + warm_up; ++i) {
      if (i < total) row.push_back(forwards[static_cast<size_t>(i)]);
      if (i >= warm_up) row.push_back(backwards[static_cast<size_t>(i - warm_up)]);
    }
  }
  return table;
}

// As 1F1B, with I in the place of B. Rank r keeps r micro-batches between I and W, so that all
// ranks hold p tapes, and fills its waits at the end with those.
ScheduleTable zbh1_table(const ScheduleShape& shape) {
  const int32_t all = shape.micro_batches;
  ScheduleTable table(static_cast<size_t>(shape.ranks));
  for (int32_t rank = 0; rank < shape.ranks; ++rank) {
    const int32_t warm_up = std::min(all, shape.ranks - 1 - rank);
    auto& row = table[static_cast<size_t>(rank)];
    const int32_t turns = all + warm_up + rank;
    for (int32_t i = 0; i < turns; ++i) {
      const int32_t input = i - warm_up;
      if (i < all) row.push_back({ActionKind::kForward, rank, i});
      if (input >= 0 && input < all) row.push_back({ActionKind::kBackwardInput, rank, input});
      if (input >= rank) row.push_back({ActionKind::kBackwardWeight, rank, input - rank});
    }
  }
  return table;
}

// A simulated run of stages in a V. Time goes in units.
class ZeroBubbleRun {
 public:
  explicit ZeroBubbleRun(const ScheduleShape& shape) : shape_(shape) {
    progress_.resize(2 * static_cast<size_t>(shape.ranks));
    table_.resize(static_cast<size_t>(shape.ranks));
  }

  ScheduleTable table() {
    const size_t all = 3 * progress_.size() * static_cast<size_t>(shape_.micro_batches);
    for (size_t done = 0; done < all;) {
      const std::vector<Progress> before = progress_;  // what other ranks finished in earlier units
      size_t moved = 0;
      for (int32_t rank = 0; rank < shape_.ranks; ++rank) moved += step(rank, before) ? 1 : 0;
      HP_CHECK(moved > 0);
      done += moved;
    }
    return table_;
  }

 private:
  struct Progress {  // micro-batches of a stage that are done
    int32_t forward = 0;
    int32_t input = 0;
    int32_t weight = 0;
    int32_t live() const { return forward - weight; }
  };

  int32_t stages() const { return static_cast<int32_t>(progress_.size()); }
  static const Progress& of(const std::vector<Progress>& all, int32_t stage) {
    return all[static_cast<size_t>(stage)];
  }
  // The latest stage of a rank first: its backwards come first.
  std::vector<int32_t> stages_of(int32_t rank) const { return {stages() - 1 - rank, rank}; }

  bool may_forward(int32_t rank, int32_t stage, const std::vector<Progress>& before) const {
    const Progress& own = of(progress_, stage);
    if (own.forward == shape_.micro_batches) return false;
    if (stage > 0 && of(before, stage - 1).forward <= own.forward) return false;
    const bool first_half = stage < shape_.ranks;
    const int32_t other = of(progress_, stages() - 1 - stage).live();
    if (own.live() + other >= 2 * shape_.ranks) return false;
    // Memory is kept free for the second half, without which no backward would begin.
    return !first_half || own.live() < 2 * shape_.ranks - 1 - rank;
  }
  bool may_input(int32_t stage, const std::vector<Progress>& before) const {
    const Progress& own = of(progress_, stage);
    if (own.input >= of(before, stage).forward) return false;
    return stage + 1 == stages() || of(before, stage + 1).input > own.input;
  }
  bool may_weight(int32_t stage) const {
    const Progress& own = of(progress_, stage);
    return own.weight < own.input;
  }

  bool step(int32_t rank, const std::vector<Progress>& before) {
    auto& row = table_[static_cast<size_t>(rank)];
    for (const int32_t stage : stages_of(rank)) {
      if (!may_input(stage, before)) continue;
      row.push_back({ActionKind::kBackwardInput, stage, progress(stage).input++});
      return true;
    }
    for (const int32_t stage : stages_of(rank)) {
      if (!may_forward(rank, stage, before)) continue;
      row.push_back({ActionKind::kForward, stage, progress(stage).forward++});
      return true;
    }
    for (const int32_t stage : stages_of(rank)) {
      if (!may_weight(stage)) continue;
      row.push_back({ActionKind::kBackwardWeight, stage, progress(stage).weight++});
      return true;
    }
    return false;
  }
  Progress& progress(int32_t stage) { return progress_[static_cast<size_t>(stage)]; }

  ScheduleShape shape_;
  std::vector<Progress> progress_;  // by stage
  ScheduleTable table_;
};

Error shape_error(std::string_view name, const std::string& why) {
  return Error{ErrorCode::kInvalidArgument, "schedule " + std::string(name) + ": " + why};
}

}  // namespace

Result<ScheduleTable> generate_schedule(std::string_view name, const ScheduleShape& shape) {
  if (shape.ranks < 1 || shape.stages_per_rank < 1 || shape.micro_batches < 1) {
    return shape_error(name, "ranks, stages per rank and micro-batches must be at least 1");
  }
  if (name == "Interleaved1F1B") return interleaved_table(shape);
  if (name == "ZBVZeroBubble") {
    if (shape.stages_per_rank == 2) return ZeroBubbleRun(shape).table();
    return shape_error(name,
                       "needs 2 stages per rank, not " + std::to_string(shape.stages_per_rank));
  }
  if (name != "GPipe" && name != "1F1B" && name != "ZBH1") {
    return shape_error(name, "unknown; use GPipe, 1F1B, Interleaved1F1B, ZBH1 or ZBVZeroBubble");
  }
  if (shape.stages_per_rank != 1) {
    return shape_error(name, "has 1 stage per rank, not " + std::to_string(shape.stages_per_rank) +
                                 "; use Interleaved1F1B for more");
  }
  if (name == "GPipe") return gpipe_table(shape);
  if (name == "1F1B") return interleaved_table(shape);
  return zbh1_table(shape);
}

}  // namespace hpctl
