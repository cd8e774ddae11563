// SPDX-License-Identifier: Apache-2.0
// Faults that `hpctl chaos` brings about on purpose, under the names that a plan and the history
// have for them.
#pragma once

#include <array>
#include <csignal>

#include "common/base/word_enum.h"

namespace hpctl {

enum class InjectedFault {
  kKillWorker,      // SIGKILL
  kStopWorker,      // SIGSTOP: it is there and does nothing
  kCrashWorker,     // SIGSEGV
  kKillAgent,       // SIGKILL to the agent proper; the holder starts another
  kKillHolder,      // SIGKILL to the holder, with which all of the node's processes end
  kKillController,  // SIGKILL
  kHangWorker,      // the built-in trainer turns in a loop inside a step
};
constexpr auto words_of(InjectedFault) {
  return std::to_array<const char*>({"kill-worker", "stop-worker", "crash-worker", "kill-agent",
                                     "kill-holder", "kill-controller", "hang-worker"});
}

// What it is done to.
enum class FaultTarget { kRank, kNode, kController };
constexpr FaultTarget target_of(InjectedFault fault) {
  switch (fault) {
    case InjectedFault::kKillWorker:
    case InjectedFault::kStopWorker:
    case InjectedFault::kCrashWorker:
    case InjectedFault::kHangWorker:
      return FaultTarget::kRank;
    case InjectedFault::kKillAgent:
    case InjectedFault::kKillHolder:
      return FaultTarget::kNode;
    case InjectedFault::kKillController:
      break;
  }
  return FaultTarget::kController;
}

// Training stops by it, and its cause is to be found; the others training does not notice.
constexpr bool stops_training(InjectedFault fault) {
  return target_of(fault) == FaultTarget::kRank || fault == InjectedFault::kKillHolder;
}

// What is said of a job that may not be attacked.
inline constexpr const char* kAllowsNoChaos =
    "may not be attacked: its job.yaml does not say debug: {chaos: true}; submit it again with "
    "that";

// That brings it about; hang-worker has none, its process is told.
constexpr int signal_of(InjectedFault fault) {
  if (fault == InjectedFault::kStopWorker) return SIGSTOP;
  if (fault == InjectedFault::kHangWorker) return 0;
  return fault == InjectedFault::kCrashWorker ? SIGSEGV : SIGKILL;
}

}  // namespace hpctl
