// SPDX-License-Identifier: Apache-2.0
#include "trainer/schedule/lower.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trainer/schedule/validate.h"

namespace hpctl {
namespace {

using RankEdge = std::pair<int32_t, int32_t>;  // sending rank, receiving rank

class Lowering {
 public:
  Lowering(const ScheduleTable& compute, const ScheduleFacts& facts)
      : compute_(compute), facts_(facts) {}

  ScheduleTable table() {
    for (const auto& row : compute_) {
      for (const Action& action : row) note_send(action);
    }
    ScheduleTable lowered;
    for (const auto& row : compute_) lowered.push_back(lowered_row(row));
    return lowered;
  }

 private:
  int32_t rank_of(int32_t stage) const { return facts_.rank_of_stage[static_cast<size_t>(stage)]; }
  int32_t last_stage() const { return static_cast<int32_t>(facts_.rank_of_stage.size()) - 1; }
  // The stage that gets the result of an action; the own stage where no other rank does.
  int32_t target_of(const Action& action) const {
    int32_t target = action.stage;
    if (action.kind == ActionKind::kForward && action.stage < last_stage()) ++target;
    if (makes_input_gradient(action.kind) && action.stage > 0) --target;
    return rank_of(target) == rank_of(action.stage) ? action.stage : target;
  }
  // The stage whose result an action needs from another rank; the own stage where there is none.
  int32_t source_of(const Action& action) const {
    int32_t source = action.stage;
    if (action.kind == ActionKind::kForward && action.stage > 0) --source;
    if (makes_input_gradient(action.kind) && action.stage < last_stage()) ++source;
    return rank_of(source) == rank_of(action.stage) ? action.stage : source;
  }
  static bool makes_input_gradient(ActionKind kind) {
    return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
  }

  void note_send(const Action& action) {
    const int32_t target = target_of(action);
    if (target == action.stage) return;
    const bool forward = action.kind == ActionKind::kForward;
    incoming_[{rank_of(action.stage), rank_of(target)}].push_back(
        {forward ? ActionKind::kRecvForward : ActionKind::kRecvBackward, target, action.micro});
  }

  std::vector<Action> lowered_row(const std::vector<Action>& row) {
    std::map<int32_t, size_t> last_of_stage;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind != ActionKind::kIdle) last_of_stage[row[i].stage] = i;
    }
    std::map<int32_t, bool> unsharded;
    std::vector<Action> lowered;
    for (size_t i = 0; i < row.size(); ++i) {
      const Action& action = row[i];
      if (action.kind == ActionKind::kIdle) continue;
      if (!std::exchange(unsharded[action.stage], true)) {
        lowered.push_back({ActionKind::kUnshard, action.stage, 0});
      }
      receive_for(action, lowered);
      lowered.push_back(action);
      if (target_of(action) != action.stage) {
        const bool forward = action.kind == ActionKind::kForward;
        lowered.push_back({forward ? ActionKind::kSendForward : ActionKind::kSendBackward,
                           action.stage, action.micro});
      }
      if (last_of_stage[action.stage] == i) {
        lowered.push_back({ActionKind::kReshard, action.stage, 0});
        lowered.push_back({ActionKind::kReduceGrad, action.stage, 0});
      }
    }
    return lowered;
  }

  void receive_for(const Action& action, std::vector<Action>& lowered) {
    const int32_t source = source_of(action);
    if (source == action.stage) return;
    const bool forward = action.kind == ActionKind::kForward;
    const Action wanted{forward ? ActionKind::kRecvForward : ActionKind::kRecvBackward,
                        action.stage, action.micro};
    const RankEdge edge{rank_of(source), rank_of(action.stage)};
    if (received_[wanted_key(wanted)]) return;
    const std::vector<Action>& order = incoming_[edge];
    for (bool found = false; !found;) {
      const Action& next = order.at(next_of_[edge]++);
      received_[wanted_key(next)] = true;
      lowered.push_back(next);
      found = next == wanted;
    }
  }
  static std::pair<int64_t, int32_t> wanted_key(const Action& action) {
    return {2 * int64_t{action.stage} + (action.kind == ActionKind::kRecvForward ? 0 : 1),
            action.micro};
  }

  const ScheduleTable& compute_;
  const ScheduleFacts& facts_;
  std::map<RankEdge, std::vector<Action>> incoming_;  // receives in the order of the sends
  std::map<RankEdge, size_t> next_of_;
  std::map<std::pair<int64_t, int32_t>, bool> received_;
};

}  // namespace

Result<ScheduleTable> lower_schedule(const ScheduleTable& compute) {
  HP_TRY_ASSIGN(ScheduleFacts facts, validate_schedule(compute));
  if (facts.has_communication) {
    return Error{ErrorCode::kInvalidArgument,
                 "the schedule table has communication already; give a compute-only table"};
  }
  return Lowering(compute, facts).table();
}

}  // namespace hpctl
