// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/slurm/node_replacement.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hpctl {
namespace {

// The beginnings of Slurm's own reasons (26.11: node_mgr.c, ping_nodes.c, job_mgr.c, proc_req.c,
// agent.c, power_save.c and gres.c).
constexpr auto kReasonsOfSlurm = std::to_array<std::string_view>(
    {"Not responding", "Node unexpectedly rebooted", "Kill task failed", "Prolog error",
     "Prolog/Epilog failure", "Epilog error", "batch job complete failure", "Duplicate jobid",
     "Low socket*core*thread count", "Low CPUs", "Low RealMemory", "Low TmpDisk", "gres/",
     "ResumeTimeout reached", "reboot timed out"});

std::string command_for(const std::string& node, bool reboot) {
  return "sudo scontrol update nodename=" + node + " state=FAIL reason=\"" +
         (reboot ? kRebootReason : kReplaceReason) + "\"";
}

}  // namespace

bool is_recovery_requested(const SlurmNode& node) {
  return node.is_unusable() && node.reason.rfind("Action:", 0) == 0;
}

bool is_reboot_requested(const SlurmNode& node) {
  return is_recovery_requested(node) && node.reason.rfind(kRebootReason, 0) == 0;
}

bool is_given_up(const SlurmNode& node) {
  return node.state == "DOWN" && node.reason.rfind("Not responding", 0) == 0;
}

bool has_foreign_reason(const SlurmNode& node) {
  if (node.reason.empty() || !node.is_unusable() || is_recovery_requested(node)) return false;
  return std::none_of(kReasonsOfSlurm.begin(), kReasonsOfSlurm.end(),
                      [&](std::string_view own) { return node.reason.starts_with(own); });
}

ReplacementStep next_step(const SlurmNode& node, const RecoveryOrder& order, bool has_work) {
  const bool both_known = !order.instance_id.empty() && !node.instance_id.empty();
  if (both_known && node.instance_id != order.instance_id) return ReplacementStep::kReplaced;
  if (order.reboot && order.since_wall_ms > 0 && node.boot_time_s * 1000 > order.since_wall_ms) {
    return ReplacementStep::kRebooted;
  }
  if (is_recovery_requested(node)) return ReplacementStep::kStandBack;
  if (has_foreign_reason(node)) return ReplacementStep::kForeign;
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
    case ReplacementStep::kForeign:
      return Error{ErrorCode::kPermissionDenied,
                   node + " was taken out of service with the reason \"" + found.front().reason +
                       "\", which hpctl does not overwrite; if the node may be " +
                       (order.reboot ? "rebooted" : "replaced") +
                       " now, run: " + command_for(node, order.reboot)};
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
