// SPDX-License-Identifier: Apache-2.0
#include "controller/core/failure_detector.h"

#include <algorithm>

namespace hpctl::core {

namespace {

using Kind = FailureVerdict::Kind;

int64_t awaited_ms(const NodeObservation& node) { return node.silent_ms - node.unasked_ms; }

FailureVerdict lost_because(const NodeObservation& node, const std::string& why) {
  const std::string asked = node.was_asked ? ", of them " + std::to_string(awaited_ms(node)) +
                                                 " ms after the controller's question,"
                                           : "";
  return {Kind::kLost,
          "no heartbeat for " + std::to_string(node.silent_ms) + " ms" + asked + " " + why};
}

int64_t silent_limit_ms(const NodeObservation& node) {
  return node.was_asked ? kSilentAskedMs : kSilentMs;
}

bool step_is_overdue(const NodeObservation& node) {
  const int64_t limit_ms = overdue_after_ms(node.longest_pause_ms);
  return node.is_command && limit_ms > 0 && std::min(node.still_ms, node.silent_ms) > limit_ms;
}

bool waits_for_it(const NodeObservation& node) {
  if (node.training == TrainingSight::kStopped) return true;
  if (node.training != TrainingSight::kSeen) return false;
  return node.is_command ? step_is_overdue(node) : node.peers_wait && node.still_ms >= kStillMs;
}

bool is_known_to_train_unheard(const NodeObservation& node) {
  return node.silent_ms - node.trained_ms > node.timeout_ms;
}

std::string what_stands_still(const NodeObservation& node) {
  if (node.peers_broke) return "its peers lost their connections";
  if (node.training == TrainingSight::kStopped) return "the recovery waits for it";
  if (node.is_command) {
    return "the other ranks have completed no step for " + std::to_string(node.still_ms) + " ms";
  }
  return "the other ranks have waited in a collective for " + std::to_string(node.still_ms) + " ms";
}

std::string what_passed(const NodeObservation& node) {
  const bool answered = node.probe == HolderProbe::kAnswered;
  const int64_t limit_ms = node.timeout_ms * (answered ? kAnsweredTimes : 1);
  std::string limit =
      "(limit " + std::to_string(limit_ms) + " ms" + (answered ? ", as its holder answers)" : ")");
  if (node.trained_ms == kNeverMs) return limit;
  return "and no rank has moved for " + std::to_string(node.trained_ms) + " ms " + limit;
}

// Nothing else is waited for.
FailureVerdict judge_late(const NodeObservation& node) {
  const bool may_be_alive = node.probe == HolderProbe::kNotAsked ||
                            node.probe == HolderProbe::kAsked ||
                            node.probe == HolderProbe::kAnswered;
  if (may_be_alive && node.silent_ms <= kAnsweredTimes * node.timeout_ms) {
    return {node.probe == HolderProbe::kNotAsked ? Kind::kProbe : Kind::kNothing, ""};
  }
  return lost_because(node, what_passed(node));
}

}  // namespace

int64_t overdue_after_ms(int64_t longest_pause_ms) {
  if (longest_pause_ms == 0) return 0;
  return std::max(kStepOverdueMs, kStepOverdueTimes * longest_pause_ms);
}

int64_t probe_after_ms(bool was_asked) { return was_asked ? kProbeAskedAfterMs : kProbeAfterMs; }

FailureVerdict judge_node(const NodeObservation& node) {
  if (node.silent_ms > node.timeout_ms && node.trained_ms > node.timeout_ms) {
    return judge_late(node);
  }
  const bool stands_still = node.peers_broke || waits_for_it(node);
  const bool goes_on = node.training == TrainingSight::kSeen && !node.is_command && !stands_still;
  if (awaited_ms(node) < probe_after_ms(node.was_asked)) return {};
  if (goes_on) {
    const bool is_to_be_probed = node.was_asked && node.probe == HolderProbe::kNotAsked;
    return {is_to_be_probed ? Kind::kProbe : Kind::kNothing, ""};
  }
  switch (node.probe) {
    case HolderProbe::kNotAsked:
      return {Kind::kProbe, ""};
    case HolderProbe::kAsked:
    case HolderProbe::kAnswered:
      return {};
    case HolderProbe::kRefused:
      return lost_because(node, "and its holder is gone: a connection to it is refused");
    case HolderProbe::kUnanswered:
      if (!stands_still || awaited_ms(node) < silent_limit_ms(node) ||
          is_known_to_train_unheard(node)) {
        return {};
      }
      return lost_because(node,
                          "while " + what_stands_still(node) + ", and its holder does not answer");
    case HolderProbe::kImpossible:
      if (!node.peers_broke || awaited_ms(node) < kSilentMs) return {};
      return lost_because(node,
                          "while " + what_stands_still(node) + " (its holder cannot be probed)");
  }
  return {};
}

NodeObservation seen_in(const Job& job) {
  NodeObservation seen;
  const bool recovers = job.state == JobState::kRecovering && job.stage != PlanStage::kNone &&
                        job.stage != PlanStage::kMeetNodes && job.stage != PlanStage::kRequeue;
  if (!recovers || job.suspended_since_ms != 0) return seen;
  seen.training = TrainingSight::kStopped;
  seen.peers_broke = job.stage == PlanStage::kStopWorkers && job.fault_is_collateral;
  return seen;
}

}  // namespace hpctl::core
