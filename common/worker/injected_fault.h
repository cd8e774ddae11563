// SPDX-License-Identifier: Apache-2.0
// Faults that `hpctl chaos` injects, under the names that a plan and the history use. One table,
// kFaults, describes each fault in one row; the functions below read that table.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include "common/base/word_enum.h"

namespace hpctl {

// In the order of kFaults.
enum class InjectedFault {
  kKillWorker,
  kStopWorker,
  kCrashWorker,
  kKillAgent,
  kKillHolder,
  kKillController,
  kHangWorker,
  kExitWorker,
  kNanGradient,
  kCorruptCheckpoint,
  kStopAgent,
  kCutAgent,
  kStopHolder,
  kOomWorker,
  kFullDisk,
  kSlowDisk,
  kFlipParameter,
  kSlowWorker,
  kDelayMessages,
  kLoseMessages,
  kDelayCollectives,
  kLoseCollectives,
  kCutPeers,
  kStorageError,
  kStoragePause,
  kStorageAway,
};

inline constexpr int64_t kCutMs = 3'000;
inline constexpr int64_t kDiskTroubleMs = 5'000;
inline constexpr int64_t kStoragePauseMs = 20'000;  // longer than recovery.heartbeat_timeout
inline constexpr int64_t kSlowMs = 5'000;
inline constexpr int64_t kSlowSteps = 40;
inline constexpr int64_t kSlowTimes = 3;  // less than what the search for hangs bears with
inline constexpr int64_t kDelayMs = 2'000;
inline constexpr int64_t kDelaysLastMs = 5'000;
inline constexpr int64_t kLossMs = 3'000;
inline constexpr int64_t kCollectiveDelayMs = 100;

// Whom it befalls.
enum class FaultVictim { kWorker, kAgent, kHolder, kController };

// The sign in the history that the fault was found.
enum class FaultSign {
  kRecovery,           // training stops, and a recovery begins
  kDamagedCheckpoint,  // likewise, and a checkpoint is found to be damaged
  kUnfitStep,          // a step is told to be unfit
  kDiskFull,           // notes that saves fail, and work again
  kDiskSlow,           // nobody need find it; a checkpoint is durable all the same
  kReconnection,       // the agents concerned are connected anew
  kStraggler,          // the rank is named as one that holds the others up, if it lasts
  kLimit,              // nothing, unless a limit of the job is passed: then a recovery begins
  kNothing,
};

// Whether the history must blame a rank or a node.
enum class FaultBlame {
  kDue,      // the victim
  kAllowed,  // the victim, its node, or nobody
  kNobody,
};

struct FaultTraits {
  InjectedFault fault;
  const char* word;
  FaultVictim victim;
  int signal;  // that brings it about; 0 = the trainer is told, or the agent does it to its stream
  FaultSign sign;
  FaultBlame blame;
  const char* thing;     // for the history: what is done; "" = the signal
  int64_t lasts_ms = 0;  // of one that may go unnoticed, or is slow: so long, and for so many steps
  int64_t lasts_steps = 0;
};

// clang-format off
inline constexpr auto kFaults = [] {
  using enum InjectedFault;
  using V = FaultVictim;
  using S = FaultSign;
  using B = FaultBlame;
  return std::to_array<FaultTraits>({
      {kKillWorker, "kill-worker", V::kWorker, SIGKILL, S::kRecovery, B::kDue, ""},
      // It is there and does nothing.
      {kStopWorker, "stop-worker", V::kWorker, SIGSTOP, S::kRecovery, B::kDue, ""},
      {kCrashWorker, "crash-worker", V::kWorker, SIGSEGV, S::kRecovery, B::kDue, ""},
      // The agent proper; the holder starts another.
      {kKillAgent, "kill-agent", V::kAgent, SIGKILL, S::kReconnection, B::kNobody, ""},
      // All of the node's processes end with it.
      {kKillHolder, "kill-holder", V::kHolder, SIGKILL, S::kRecovery, B::kDue, ""},
      {kKillController, "kill-controller", V::kController, SIGKILL, S::kReconnection, B::kNobody,
       ""},
      // It turns in a loop inside a step.
      {kHangWorker, "hang-worker", V::kWorker, 0, S::kRecovery, B::kDue, "an endless loop"},
      // It ends by itself, as a program does that fails.
      {kExitWorker, "exit-worker", V::kWorker, 0, S::kRecovery, B::kDue,
       "an exit in the middle of a step"},
      // Every rank finds the step unfit; whose gradient it was is known where it is done again.
      {kNanGradient, "nan-gradient", V::kWorker, 0, S::kUnfitStep, B::kAllowed,
       "NaN gradients of one step"},
      // kill-holder, and a byte of the checkpoint that is then to be read is inverted before.
      {kCorruptCheckpoint, "corrupt-checkpoint", V::kHolder, SIGKILL, S::kDamagedCheckpoint,
       B::kDue, "damage to the newest checkpoint, before it is read, and SIGKILL"},
      // The holder replaces it.
      {kStopAgent, "stop-agent", V::kAgent, SIGSTOP, S::kReconnection, B::kNobody, ""},
      // Nothing passes between the agent and the controller for kCutMs.
      {kCutAgent, "cut-agent", V::kAgent, 0, S::kReconnection, B::kAllowed,
       "a cut of the network to the controller"},
      // The agent ends it.
      {kStopHolder, "stop-holder", V::kHolder, SIGSTOP, S::kRecovery, B::kDue, ""},
      // It takes memory until the kernel ends it.
      {kOomWorker, "oom-worker", V::kWorker, 0, S::kRecovery, B::kDue, "memory to its limit"},
      // Its part of a checkpoint finds the disk full, for kDiskTroubleMs.
      {kFullDisk, "full-disk", V::kWorker, 0, S::kDiskFull, B::kNobody,
       "a full disk for the next checkpoint"},
      // Its part of the next checkpoint takes kDiskTroubleMs longer.
      {kSlowDisk, "slow-disk", V::kWorker, 0, S::kDiskSlow, B::kNobody,
       "a slow disk for the next checkpoint", kDiskTroubleMs},
      // A bit of one of its parameters.
      {kFlipParameter, "flip-parameter", V::kWorker, 0, S::kNothing, B::kNobody,
       "an inverted bit of a parameter"},
      // Its steps' passes take kSlowTimes as long, for kSlowMs and kSlowSteps at least.
      {kSlowWorker, "slow-worker", V::kWorker, 0, S::kStraggler, B::kAllowed,
       "slow computing for a while", kSlowMs, kSlowSteps},
      // Messages between agent and controller arrive kDelayMs later, for kDelaysLastMs.
      {kDelayMessages, "delay-messages", V::kAgent, 0, S::kLimit, B::kAllowed,
       "a delay of its messages for a while", kDelaysLastMs + kDelayMs},
      // Nothing of it arrives for kLossMs; then the connection breaks.
      {kLoseMessages, "lose-messages", V::kAgent, 0, S::kReconnection, B::kAllowed,
       "a loss of its messages for a while"},
      // Messages of its collectives leave and arrive kCollectiveDelayMs later, for kDelaysLastMs.
      {kDelayCollectives, "delay-collectives", V::kWorker, 0, S::kLimit, B::kAllowed,
       "a delay of what its collectives send and receive, for a while", kDelaysLastMs},
      // Nothing of it arrives any more, and no connection breaks.
      {kLoseCollectives, "lose-collectives", V::kWorker, 0, S::kRecovery, B::kAllowed,
       "a loss of all that its collectives send and receive"},
      // The connections to all of its peers.
      {kCutPeers, "cut-peers", V::kWorker, 0, S::kRecovery, B::kAllowed,
       "a break of its connections to its peers"},
      // Its part of a checkpoint gets EIO, for kDiskTroubleMs.
      {kStorageError, "storage-error", V::kWorker, 0, S::kDiskFull, B::kNobody,
       "I/O errors of storage for the next checkpoint"},
      // Its part of the next checkpoint waits for storage for kStoragePauseMs.
      {kStoragePause, "storage-pause", V::kWorker, 0, S::kDiskSlow, B::kNobody,
       "a pause of storage for the next checkpoint", kStoragePauseMs},
      // kill-worker, and the controller cannot read the checkpoint directory for kDiskTroubleMs.
      {kStorageAway, "storage-away", V::kWorker, SIGKILL, S::kRecovery, B::kDue,
       "SIGKILL, and a checkpoint directory that is away"},
  });
}();
// clang-format on

constexpr const FaultTraits& traits_of(InjectedFault fault) {
  return kFaults[static_cast<size_t>(fault)];
}
static_assert([] {
  for (size_t i = 0; i < kFaults.size(); ++i) {
    if (kFaults[i].fault != static_cast<InjectedFault>(i)) return false;
  }
  return true;
}());

constexpr auto words_of(InjectedFault) {
  std::array<const char*, kFaults.size()> words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = kFaults[i].word;
  return words;
}

// The kind of target.
enum class FaultTarget { kRank, kNode, kController };
constexpr FaultTarget target_of(InjectedFault fault) {
  const FaultVictim victim = traits_of(fault).victim;
  if (victim == FaultVictim::kController) return FaultTarget::kController;
  return victim == FaultVictim::kWorker ? FaultTarget::kRank : FaultTarget::kNode;
}

// The process injects it into itself, on an order; other faults come from outside.
constexpr bool is_told_to_trainer(InjectedFault fault) {
  return traits_of(fault).victim == FaultVictim::kWorker && traits_of(fault).signal == 0;
}

constexpr bool is_to_holder(InjectedFault fault) {
  return traits_of(fault).victim == FaultVictim::kHolder;
}

constexpr bool is_to_agent(InjectedFault fault) {
  return traits_of(fault).victim == FaultVictim::kAgent;
}

// The controller has a part in it, when it looks for the checkpoint of the next generation.
constexpr bool fails_directory(InjectedFault fault) {
  return fault == InjectedFault::kCorruptCheckpoint || fault == InjectedFault::kStorageAway;
}

// Training stops, and hpctl must find the cause. Training does not notice the other faults, except
// NaN, which stops it if the job's policy for bad steps says so.
constexpr bool stops_training(InjectedFault fault) {
  return traits_of(fault).sign == FaultSign::kRecovery ||
         traits_of(fault).sign == FaultSign::kDamagedCheckpoint;
}

// Training goes on with it for a while, and nothing need come of it.
constexpr bool goes_unnoticed(InjectedFault fault) {
  return traits_of(fault).sign >= FaultSign::kStraggler;
}

// The error for a job that does not allow faults.
inline constexpr const char* kAllowsNoChaos =
    "may not be attacked: its job.yaml does not say debug: {chaos: true}; submit it again with "
    "that";

}  // namespace hpctl
