// SPDX-License-Identifier: Apache-2.0
// Faults that `hpctl chaos` brings about on purpose, under the names that a plan and the history
// have for them.
#pragma once

#include <array>
#include <csignal>
#include <cstdint>

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
  kExitWorker,      // it ends by itself inside a step, as a program does that fails
  kNanGradient,     // its gradients of a step are NaN
  // kKillHolder, and a byte of the checkpoint that is then to be read is inverted before.
  kCorruptCheckpoint,
  kStopAgent,      // SIGSTOP to the agent proper; the holder replaces it
  kCutAgent,       // nothing passes between the agent and the controller for kCutMs
  kStopHolder,     // SIGSTOP to the holder; the agent ends it
  kOomWorker,      // it takes memory until the kernel ends it
  kFullDisk,       // its part of a checkpoint finds the disk full, for kDiskTroubleMs
  kSlowDisk,       // its part of the next checkpoint takes kDiskTroubleMs longer
  kFlipParameter,  // a bit of one of its parameters is inverted
  kSlowWorker,     // its steps' passes take kSlowTimes as long, for kSlowMs and kSlowSteps at least
  // What agent and controller say to each other arrives kDelayMs later, for kDelaysLastMs.
  kDelayMessages,
  kLoseMessages,  // nothing of it arrives for kLossMs; then the connection breaks
};
constexpr auto words_of(InjectedFault) {
  return std::to_array<const char*>(
      {"kill-worker",     "stop-worker",    "crash-worker", "kill-agent",     "kill-holder",
       "kill-controller", "hang-worker",    "exit-worker",  "nan-gradient",   "corrupt-checkpoint",
       "stop-agent",      "cut-agent",      "stop-holder",  "oom-worker",     "full-disk",
       "slow-disk",       "flip-parameter", "slow-worker",  "delay-messages", "lose-messages"});
}

inline constexpr int64_t kCutMs = 3'000;
inline constexpr int64_t kDiskTroubleMs = 5'000;
inline constexpr int64_t kSlowMs = 5'000;
inline constexpr int64_t kSlowSteps = 40;
inline constexpr int64_t kSlowTimes = 3;  // less than what the search for hangs bears with
inline constexpr int64_t kDelayMs = 2'000;
inline constexpr int64_t kDelaysLastMs = 5'000;
inline constexpr int64_t kLossMs = 3'000;

// What it is done to.
enum class FaultTarget { kRank, kNode, kController };
constexpr FaultTarget target_of(InjectedFault fault) {
  switch (fault) {
    case InjectedFault::kKillWorker:
    case InjectedFault::kStopWorker:
    case InjectedFault::kCrashWorker:
    case InjectedFault::kHangWorker:
    case InjectedFault::kExitWorker:
    case InjectedFault::kNanGradient:
    case InjectedFault::kOomWorker:
    case InjectedFault::kFullDisk:
    case InjectedFault::kSlowDisk:
    case InjectedFault::kFlipParameter:
    case InjectedFault::kSlowWorker:
      return FaultTarget::kRank;
    case InjectedFault::kStopAgent:
    case InjectedFault::kCutAgent:
    case InjectedFault::kDelayMessages:
    case InjectedFault::kLoseMessages:
    case InjectedFault::kStopHolder:
    case InjectedFault::kKillAgent:
    case InjectedFault::kKillHolder:
    case InjectedFault::kCorruptCheckpoint:
      return FaultTarget::kNode;
    case InjectedFault::kKillController:
      break;
  }
  return FaultTarget::kController;
}

// Training goes on with a trainer that is told so, and nothing ends.
constexpr bool is_of_data(InjectedFault fault) {
  return fault == InjectedFault::kNanGradient || fault == InjectedFault::kFullDisk ||
         fault == InjectedFault::kSlowDisk || fault == InjectedFault::kFlipParameter ||
         fault == InjectedFault::kSlowWorker;
}

// The process brings it about, because it is told to; the others come from outside.
constexpr bool is_told_to_trainer(InjectedFault fault) {
  return is_of_data(fault) || fault == InjectedFault::kHangWorker ||
         fault == InjectedFault::kExitWorker || fault == InjectedFault::kOomWorker;
}

// The node's holder is killed or stopped.
constexpr bool is_to_holder(InjectedFault fault) {
  return fault == InjectedFault::kKillHolder || fault == InjectedFault::kCorruptCheckpoint ||
         fault == InjectedFault::kStopHolder;
}

// It stands between a node's agent and the controller; the agent brings it about.
constexpr bool is_of_network(InjectedFault fault) {
  return fault == InjectedFault::kCutAgent || fault == InjectedFault::kDelayMessages ||
         fault == InjectedFault::kLoseMessages;
}

constexpr bool is_to_agent(InjectedFault fault) {
  return fault == InjectedFault::kKillAgent || fault == InjectedFault::kStopAgent ||
         is_of_network(fault);
}

// Training goes on with it for a while. A rank that is slow for long enough is named; of the others
// nobody takes notice, unless a limit of the job is passed.
constexpr bool goes_unnoticed(InjectedFault fault) {
  return fault == InjectedFault::kFlipParameter || fault == InjectedFault::kSlowWorker ||
         fault == InjectedFault::kDelayMessages;
}

// Training stops by it, and its cause is to be found. Of the others training does not notice any
// but NaN, which stops it where the job's policy for unfit steps has it so.
constexpr bool stops_training(InjectedFault fault) {
  return is_to_holder(fault) || (target_of(fault) == FaultTarget::kRank && !is_of_data(fault));
}

// What is said of a job that may not be attacked.
inline constexpr const char* kAllowsNoChaos =
    "may not be attacked: its job.yaml does not say debug: {chaos: true}; submit it again with "
    "that";

// That brings it about; 0 = a process is told.
constexpr int signal_of(InjectedFault fault) {
  const bool stops = fault == InjectedFault::kStopWorker || fault == InjectedFault::kStopAgent ||
                     fault == InjectedFault::kStopHolder;
  if (stops) return SIGSTOP;
  if (is_told_to_trainer(fault) || is_of_network(fault)) return 0;
  return fault == InjectedFault::kCrashWorker ? SIGSEGV : SIGKILL;
}

}  // namespace hpctl
