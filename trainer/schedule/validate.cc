// SPDX-License-Identifier: Apache-2.0
// The first pass finds the stages. The second counts. The last runs the table without time: any
// rank that can go on does, and a rank that cannot names the cell where it stands.
#include "trainer/schedule/validate.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace hpctl {
namespace {

using ScheduleCell = std::tuple<ActionKind, int32_t, int32_t>;

class ScheduleCheck {
 public:
  explicit ScheduleCheck(const ScheduleTable& table)
      : table_(table), next_(table.size()), live_(table.size()) {
    facts_.peak_live.resize(table.size());
  }

  Result<ScheduleFacts> facts() {
    HP_TRY(find_stages());
    HP_TRY(count_actions());
    HP_TRY(run());
    return facts_;
  }

 private:
  int32_t stages() const { return static_cast<int32_t>(facts_.rank_of_stage.size()); }
  int32_t rank_of(int32_t stage) const { return facts_.rank_of_stage[static_cast<size_t>(stage)]; }
  bool are_apart(int32_t stage, int32_t other) const {
    return other >= 0 && other < stages() && rank_of(stage) != rank_of(other);
  }
  bool has(ActionKind kind, int32_t stage, int32_t micro) const {
    return done_.contains({kind, stage, micro});
  }

  Error error_at(size_t row, size_t column, const std::string& why) const {
    return Error{ErrorCode::kInvalidArgument, "row " + std::to_string(row + 1) + ", column " +
                                                  std::to_string(column + 1) + ": " +
                                                  action_text(table_[row][column]) + ": " + why};
  }

  Outcome find_stages() {
    std::map<int32_t, int32_t> ranks;
    for (size_t row = 0; row < table_.size(); ++row) {
      for (size_t column = 0; column < table_[row].size(); ++column) {
        const Action& action = table_[row][column];
        if (action.kind == ActionKind::kIdle) continue;
        if (action.stage < 0 || action.micro < 0) return error_at(row, column, "negative number");
        const auto [it, added] = ranks.try_emplace(action.stage, static_cast<int32_t>(row));
        if (!added && it->second != static_cast<int32_t>(row)) {
          return error_at(row, column,
                          "the stage is in row " + std::to_string(it->second + 1) +
                              " already; a stage is on one rank");
        }
        facts_.micro_batches = std::max(facts_.micro_batches, action.micro + 1);
        facts_.has_communication = facts_.has_communication || !is_compute(action.kind);
        has_unshard_ = has_unshard_ || action.kind == ActionKind::kUnshard;
        has_reduce_ = has_reduce_ || action.kind == ActionKind::kReduceGrad;
      }
    }
    for (const auto& [stage, rank] : ranks) {
      if (stage != stages()) {
        return Error{ErrorCode::kInvalidArgument,
                     "stage " + std::to_string(stages()) + " is in no row"};
      }
      facts_.rank_of_stage.push_back(rank);
    }
    if (!ranks.empty()) return Ok{};
    return Error{ErrorCode::kInvalidArgument, "the schedule table has no action"};
  }

  Outcome count_actions() {
    std::set<ScheduleCell> seen;
    for (size_t row = 0; row < table_.size(); ++row) {
      for (size_t column = 0; column < table_[row].size(); ++column) {
        const Action& action = table_[row][column];
        if (action.kind == ActionKind::kIdle || action.kind == ActionKind::kUnshard ||
            action.kind == ActionKind::kReshard) {
          continue;
        }
        if (!seen.insert({action.kind, action.stage, action.micro}).second) {
          return error_at(row, column, "a second time");
        }
      }
    }
    for (int32_t stage = 0; stage < stages(); ++stage) HP_TRY(check_complete(seen, stage));
    return Ok{};
  }

  // What is missing has no column of its own: the end of the row is named.
  Outcome check_complete(const std::set<ScheduleCell>& seen, int32_t stage) const {
    for (int32_t micro = 0; micro < facts_.micro_batches; ++micro) {
      HP_TRY(require(seen, {ActionKind::kForward, stage, micro}));
      if (!seen.contains({ActionKind::kBackward, stage, micro})) {
        HP_TRY(require(seen, {ActionKind::kBackwardInput, stage, micro}));
        HP_TRY(require(seen, {ActionKind::kBackwardWeight, stage, micro}));
      }
      if (!facts_.has_communication) continue;
      if (are_apart(stage, stage - 1)) {
        HP_TRY(require(seen, {ActionKind::kRecvForward, stage, micro}));
        HP_TRY(require(seen, {ActionKind::kSendBackward, stage, micro}));
      }
      if (are_apart(stage, stage + 1)) {
        HP_TRY(require(seen, {ActionKind::kRecvBackward, stage, micro}));
        HP_TRY(require(seen, {ActionKind::kSendForward, stage, micro}));
      }
    }
    if (has_reduce_) HP_TRY(require(seen, {ActionKind::kReduceGrad, stage, 0}));
    return Ok{};
  }

  Outcome require(const std::set<ScheduleCell>& seen, const Action& action) const {
    if (seen.contains({action.kind, action.stage, action.micro})) return Ok{};
    const auto row = static_cast<size_t>(rank_of(action.stage));
    return Error{ErrorCode::kInvalidArgument, "row " + std::to_string(row + 1) + ", column " +
                                                  std::to_string(table_[row].size() + 1) +
                                                  ": the row ends without " + action_text(action)};
  }

  Outcome run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t row = 0; row < table_.size(); ++row) {
        while (next_[row] < table_[row].size()) {
          const Action& action = table_[row][next_[row]];
          if (waits_for_peer(action)) break;
          if (const auto why = fault_of(action)) return error_at(row, next_[row], *why);
          note(action, row);
          ++next_[row];
          moved = true;
        }
      }
    }
    for (size_t row = 0; row < table_.size(); ++row) {
      if (next_[row] == table_[row].size()) continue;
      return error_at(row, next_[row], "deadlock: what it waits for is never reached");
    }
    return Ok{};
  }

  // Without communication in the table an action waits for the other rank's result itself.
  bool waits_for_peer(const Action& action) const {
    const int32_t stage = action.stage;
    if (action.kind == ActionKind::kRecvForward && are_apart(stage, stage - 1)) {
      return !has(ActionKind::kSendForward, stage - 1, action.micro);
    }
    if (action.kind == ActionKind::kRecvBackward && are_apart(stage, stage + 1)) {
      return !has(ActionKind::kSendBackward, stage + 1, action.micro);
    }
    if (facts_.has_communication) return false;
    if (action.kind == ActionKind::kForward && are_apart(stage, stage - 1)) {
      return !has(ActionKind::kForward, stage - 1, action.micro);
    }
    return makes_gradient(action.kind) && are_apart(stage, stage + 1) &&
           !has_gradient(stage + 1, action.micro);
  }

  static bool makes_gradient(ActionKind kind) {
    return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
  }
  bool has_gradient(int32_t stage, int32_t micro) const {
    return has(ActionKind::kBackward, stage, micro) ||
           has(ActionKind::kBackwardInput, stage, micro);
  }
  bool has_input(const Action& action) const {
    if (action.stage == 0) return true;
    if (facts_.has_communication && are_apart(action.stage, action.stage - 1)) {
      return has(ActionKind::kRecvForward, action.stage, action.micro);
    }
    return has(ActionKind::kForward, action.stage - 1, action.micro);
  }
  bool has_output_gradient(const Action& action) const {
    if (action.stage + 1 == stages()) return true;
    if (facts_.has_communication && are_apart(action.stage, action.stage + 1)) {
      return has(ActionKind::kRecvBackward, action.stage, action.micro);
    }
    return has_gradient(action.stage + 1, action.micro);
  }

  std::optional<std::string> fault_of(const Action& action) const {
    const int32_t stage = action.stage;
    const int32_t micro = action.micro;
    const auto accumulated = accumulated_.find(stage);
    const int32_t weights = accumulated == accumulated_.end() ? 0 : accumulated->second;
    switch (action.kind) {
      case ActionKind::kIdle:
        return std::nullopt;
      case ActionKind::kForward:
        if (!has_input(action)) return "its input is not there yet";
        return compute_fault(action);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        if (!has(ActionKind::kForward, stage, micro)) return "its forward comes later";
        if (has_gradient(stage, micro)) return "the micro-batch has B and I; use one of them";
        if (!has_output_gradient(action)) return "the gradient of its output is not there yet";
        if (action.kind == ActionKind::kBackward && weights != micro) return order_fault(weights);
        return compute_fault(action);
      case ActionKind::kBackwardWeight:
        if (!has(ActionKind::kBackwardInput, stage, micro)) return "there is no I before it";
        if (weights != micro) return order_fault(weights);
        return reduced_fault(stage);
      case ActionKind::kSendForward:
        if (!are_apart(stage, stage + 1)) return "no other rank needs it";
        if (!has(ActionKind::kForward, stage, micro)) return "the forward comes later";
        return std::nullopt;
      case ActionKind::kSendBackward:
        if (!are_apart(stage, stage - 1)) return "no other rank needs it";
        if (!has_gradient(stage, micro)) return "the backward comes later";
        return std::nullopt;
      case ActionKind::kRecvForward:
        return receive_fault(action, stage - 1, ActionKind::kSendForward);
      case ActionKind::kRecvBackward:
        return receive_fault(action, stage + 1, ActionKind::kSendBackward);
      case ActionKind::kUnshard:
        if (unsharded_.contains(stage)) return "the stage is unsharded already";
        return std::nullopt;
      case ActionKind::kReshard:
        if (!unsharded_.contains(stage)) return "the stage is not unsharded";
        return std::nullopt;
      case ActionKind::kReduceGrad:
        if (weights != facts_.micro_batches) return "gradients of the stage come later";
        return std::nullopt;
    }
    return "unknown kind of action";
  }

  static std::string order_fault(int32_t expected) {
    return "micro-batch " + std::to_string(expected) +
           " is next; gradients are accumulated in ascending order";
  }
  std::optional<std::string> compute_fault(const Action& action) const {
    if (has_unshard_ && !unsharded_.contains(action.stage)) return "the stage is not unsharded";
    return reduced_fault(action.stage);
  }
  std::optional<std::string> reduced_fault(int32_t stage) const {
    if (has(ActionKind::kReduceGrad, stage, 0)) return "it comes after REDUCE_GRAD of its stage";
    return std::nullopt;
  }
  std::optional<std::string> receive_fault(const Action& action, int32_t from,
                                           ActionKind kind) const {
    if (!are_apart(action.stage, from)) return "no other rank sends it";
    const auto sent = sent_.find({rank_of(from), rank_of(action.stage)});
    const auto received = received_.find({rank_of(from), rank_of(action.stage)});
    const size_t next = received == received_.end() ? 0 : received->second;
    const Action& first = sent->second.at(next);
    if (first == Action{kind, from, action.micro}) return std::nullopt;
    return "the other end of the edge sends " + action_text(first) + " first";
  }

  void note(const Action& action, size_t row) {
    if (action.kind == ActionKind::kIdle) return;
    const int32_t stage = action.stage;
    done_.insert({action.kind, stage, action.micro});
    const auto own = static_cast<int32_t>(row);
    if (action.kind == ActionKind::kForward) {
      facts_.peak_live[row] = std::max(facts_.peak_live[row], ++live_[row]);
    }
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) {
      --live_[row];
      ++accumulated_[stage];
    }
    if (action.kind == ActionKind::kSendForward) sent_[{own, rank_of(stage + 1)}].push_back(action);
    if (action.kind == ActionKind::kSendBackward) {
      sent_[{own, rank_of(stage - 1)}].push_back(action);
    }
    if (action.kind == ActionKind::kRecvForward) ++received_[{rank_of(stage - 1), own}];
    if (action.kind == ActionKind::kRecvBackward) ++received_[{rank_of(stage + 1), own}];
    if (action.kind == ActionKind::kUnshard) unsharded_.insert(stage);
    if (action.kind == ActionKind::kReshard) unsharded_.erase(stage);
  }

  const ScheduleTable& table_;
  ScheduleFacts facts_;
  bool has_unshard_ = false;
  bool has_reduce_ = false;
  std::vector<size_t> next_;   // by row
  std::vector<int32_t> live_;  // by row
  std::set<ScheduleCell> done_;
  std::set<int32_t> unsharded_;
  std::map<int32_t, int32_t> accumulated_;                           // by stage: micro-batches
  std::map<std::pair<int32_t, int32_t>, std::vector<Action>> sent_;  // by sender and receiver
  std::map<std::pair<int32_t, int32_t>, size_t> received_;
};

}  // namespace

Result<ScheduleFacts> validate_schedule(const ScheduleTable& table) {
  return ScheduleCheck(table).facts();
}

}  // namespace hpctl
