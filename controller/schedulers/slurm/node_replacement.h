// SPDX-License-Identifier: Apache-2.0
// HyperPod replaces a node's machine, or reboots it, when the node's state is FAIL and its reason
// is exactly one of two strings. Slurm may append to an existing reason ("… : Not responding"), so
// only its beginning is compared. The first request stays in force until the node is back. A reason
// that is neither HyperPod's nor Slurm's own comes from a person or a site's health check: hpctl
// never overwrites it, and an operator gets the command instead.
#pragma once

#include <string>

#include "common/slurm/hpslurm.h"

namespace hpctl {

inline constexpr char kReplaceReason[] = "Action:Replace";
inline constexpr char kRebootReason[] = "Action:Reboot";

// Returns whether there is a request to replace or reboot this node; to reboot it. A node that is
// back may still show the reason: Slurm 24.11 keeps it until the next job gets the node.
bool is_recovery_requested(const SlurmNode& node);
bool is_reboot_requested(const SlurmNode& node);

// slurmd was silent for SlurmdTimeout. An operator who takes a node down gives another reason.
bool is_given_up(const SlurmNode& node);

// Returns whether the node was taken out of service for a reason of the site ("ticket 7").
bool has_foreign_reason(const SlurmNode& node);

enum class ReplacementStep {
  kAsk,        // write the reason
  kWait,       // work has not left the node
  kStandBack,  // somebody has asked already
  kForeign,    // somebody took the node out for another reason, which stays
  kReplaced,   // it is another machine by now
  kRebooted,   // it has booted since the reboot was wanted
};
struct RecoveryOrder {
  bool reboot = false;
  std::string instance_id;  // of the machine that is bad; "" = unknown, then kReplaced is not seen
  int64_t since_wall_ms = 0;  // since when a reboot is wanted; 0 = unknown
};
ReplacementStep next_step(const SlurmNode& node, const RecoveryOrder& order, bool has_work);

// kAsk: requested now; kStandBack: requested before; kRebooted: no request is needed.
// kFailedPrecondition if work is still there or another machine is; kPermissionDenied with the
// command for an operator, also with a foreign reason.
Result<ReplacementStep> request_recovery(SlurmClient& slurm, const std::string& node,
                                         const RecoveryOrder& order, bool has_work);

}  // namespace hpctl
