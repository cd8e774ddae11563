// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/slurm/node_replacement.h"

namespace hpctl {

bool is_recovery_requested(const SlurmNode& node) {
  return node.is_unusable() && node.reason.rfind("Action:", 0) == 0;
}

bool is_reboot_requested(const SlurmNode& node) {
  return is_recovery_requested(node) && node.reason.rfind(kRebootReason, 0) == 0;
}

bool is_given_up(const SlurmNode& node) {
  return node.state == "DOWN" && node.reason.rfind("Not responding", 0) == 0;
}

ReplacementStep next_step(const SlurmNode& node, const RecoveryOrder& order, bool has_work) {
  const bool both_known = !order.instance_id.empty() && !node.instance_id.empty();
  if (both_known && node.instance_id != order.instance_id) return ReplacementStep::kReplaced;
  if (order.reboot && order.since_wall_ms > 0 && node.boot_time_s * 1000 > order.since_wall_ms) {
    return ReplacementStep::kRebooted;
  }
  if (is_recovery_requested(node)) return ReplacementStep::kStandBack;
  return has_work ? ReplacementStep::kWait : ReplacementStep::kAsk;
}

Result<ReplacementStep> request_recovery(SlurmClient& slurm, const std::string& node,
                                         const RecoveryOrder& order, bool has_work) {
  HP_TRY_ASSIGN(const auto found, slurm.nodes({node}));
  switch (next_step(found.front(), order, has_work)) {
    case ReplacementStep::kStandBack:
      return ReplacementStep::kStandBack;
    case ReplacementStep::kRebooted:
      return ReplacementStep::kRebooted;
    case ReplacementStep::kReplaced:
      return Error{ErrorCode::kFailedPrecondition,
                   node + " is another machine by now (" + found.front().instance_id + ")"};
    case ReplacementStep::kWait:
      return Error{ErrorCode::kFailedPrecondition, "work has not left " + node};
    case ReplacementStep::kAsk:
      break;
  }
  HP_TRY(slurm.update_node(node, SlurmNodeState::kFail,
                           order.reboot ? kRebootReason : kReplaceReason));
  return ReplacementStep::kAsk;
}

}  // namespace hpctl
