// SPDX-License-Identifier: Apache-2.0
#include "trainer/schedule/simulate.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>

#include "common/base/check.h"
#include "trainer/schedule/validate.h"

namespace hpctl {
namespace {

class TimedRun {
 public:
  TimedRun(const ScheduleTable& table, const ScheduleFacts& facts, const StageTimes& times,
           const ExtraTime& extra)
      : table_(table), facts_(facts), times_(times), extra_(extra), clock_(table.size()) {}

  ScheduleTime time() {
    ScheduleTime result;
    result.ranks.resize(table_.size());
    std::vector<size_t> next(table_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t row = 0; row < table_.size(); ++row) {
        for (; next[row] < table_[row].size(); ++next[row], moved = true) {
          const auto start = start_of(table_[row][next[row]], row);
          if (!start) break;
          finish(table_[row][next[row]], row, *start, result.ranks[row]);
        }
      }
    }
    for (size_t row = 0; row < table_.size(); ++row) HP_CHECK(next[row] == table_[row].size());
    result.makespan = *std::max_element(clock_.begin(), clock_.end());
    for (size_t row = 0; row < table_.size(); ++row) {
      result.ranks[row].bubble = result.makespan - result.ranks[row].busy;
      result.ranks[row].peak_live = facts_.peak_live[row];
    }
    return result;
  }

 private:
  static ActionKind result_kind(ActionKind kind) {
    return kind == ActionKind::kBackward ? ActionKind::kBackwardInput : kind;
  }
  bool is_on(int32_t stage, size_t row) const {
    return facts_.rank_of_stage[static_cast<size_t>(stage)] == static_cast<int32_t>(row);
  }

  // Nothing while the other rank has not come to what the action needs.
  std::optional<int64_t> start_of(const Action& action, size_t row) const {
    const bool compute_only = !facts_.has_communication;
    const ActionKind kind = result_kind(action.kind);
    const auto stages = static_cast<int32_t>(facts_.rank_of_stage.size());
    std::optional<std::tuple<ActionKind, int32_t, int32_t>> needed;
    if (kind == ActionKind::kRecvForward) {
      needed = {ActionKind::kSendForward, action.stage - 1, action.micro};
    } else if (kind == ActionKind::kRecvBackward) {
      needed = {ActionKind::kSendBackward, action.stage + 1, action.micro};
    } else if (compute_only && kind == ActionKind::kForward && action.stage > 0 &&
               !is_on(action.stage - 1, row)) {
      needed = {kind, action.stage - 1, action.micro};
    } else if (compute_only && kind == ActionKind::kBackwardInput && action.stage + 1 < stages &&
               !is_on(action.stage + 1, row)) {
      needed = {kind, action.stage + 1, action.micro};
    }
    if (!needed) return clock_[row];
    const auto made = finished_.find(*needed);
    if (made == finished_.end()) return std::nullopt;
    return std::max(clock_[row], made->second + times_.send);
  }

  int64_t duration_of(ActionKind kind) const {
    if (kind == ActionKind::kForward) return times_.forward;
    if (kind == ActionKind::kBackward) return times_.input + times_.weight;
    if (kind == ActionKind::kBackwardInput) return times_.input;
    return kind == ActionKind::kBackwardWeight ? times_.weight : 0;
  }

  void finish(const Action& action, size_t row, int64_t start, RankTime& rank) {
    if (action.kind == ActionKind::kIdle) return;
    int64_t duration = duration_of(action.kind);
    if (extra_) duration += extra_(static_cast<int32_t>(row), action);
    if (is_compute(action.kind)) rank.busy += duration;
    clock_[row] = start + duration;
    finished_[{result_kind(action.kind), action.stage, action.micro}] = clock_[row];
  }

  const ScheduleTable& table_;
  const ScheduleFacts& facts_;
  const StageTimes& times_;
  const ExtraTime& extra_;
  std::vector<int64_t> clock_;  // by rank
  std::map<std::tuple<ActionKind, int32_t, int32_t>, int64_t> finished_;
};

}  // namespace

Result<ScheduleTime> simulate_schedule(const ScheduleTable& table, const StageTimes& times,
                                       const ExtraTime& extra) {
  HP_TRY_ASSIGN(ScheduleFacts facts, validate_schedule(table));
  return TimedRun(table, facts, times, extra).time();
}

}  // namespace hpctl
