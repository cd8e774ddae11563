// SPDX-License-Identifier: Apache-2.0
// HyperPod puts another machine in a node's place, or reboots it, when the node's state is FAIL and
// its reason is exactly one of two strings. Slurm may append to a reason that stands ("… : Not
// responding"), so it is read by its beginning. Whoever wrote one first is to be left alone until
// the node is back.
#pragma once

#include <string>

#include "common/rpc/hpslurm.h"

namespace hpctl {

inline constexpr char kReplaceReason[] = "Action:Replace";
inline constexpr char kRebootReason[] = "Action:Reboot";

// Somebody has asked for this node to be replaced or rebooted. A node that is back may still show
// the reason: Slurm 24.11 keeps it until the next job gets the node.
bool is_recovery_requested(const SlurmNode& node);

// slurmd was silent for SlurmdTimeout. An operator who takes a node down gives another reason.
bool is_given_up(const SlurmNode& node);

enum class ReplacementStep {
  kAsk,        // write the reason
  kWait,       // work has not left the node
  kStandBack,  // somebody has asked already
  kReplaced,   // it is another machine by now
};
// `instance_id` is that of the machine that is bad; "" = unknown, then kReplaced is not seen.
ReplacementStep next_step(const SlurmNode& node, const std::string& instance_id, bool has_work);

// kAsk: asked for now; kStandBack: somebody had asked before. kFailedPrecondition when work is
// still there or another machine is; kPermissionDenied with the command for an operator.
Result<ReplacementStep> request_recovery(SlurmClient& slurm, const std::string& node,
                                         const char* reason, const std::string& instance_id,
                                         bool has_work);

}  // namespace hpctl
