// SPDX-License-Identifier: Apache-2.0
#include "controller/core/types.h"

#include <array>

namespace hpctl::core {

const char* to_string(JobState state) {
  switch (state) {
    case JobState::kPending:
      return "PENDING";
    case JobState::kStarting:
      return "STARTING";
    case JobState::kRunning:
      return "RUNNING";
    case JobState::kRecovering:
      return "RECOVERING";
    case JobState::kFinished:
      return "FINISHED";
    case JobState::kFailed:
      return "FAILED";
    case JobState::kCancelled:
      return "CANCELLED";
    case JobState::kTimeout:
      return "TIMEOUT";
  }
  return "UNKNOWN";
}

const char* shown_state(const Job& job) {
  if (has_ended(job.state)) return to_string(job.state);
  if (job.suspended_since_ms != 0) return "SUSPENDED";
  const bool ends = job.cancel_requested || (!job.ending.reason.empty() && !job.ending.requeues);
  return ends ? "STOPPING" : to_string(job.state);
}

const char* to_string(PlanStage stage) {
  switch (stage) {
    case PlanStage::kNone:
      return "none";
    case PlanStage::kStopWorkers:
      return "stop-workers";
    case PlanStage::kWaitNodes:
      return "wait-nodes";
    case PlanStage::kFindCheckpoint:
      return "find-checkpoint";
    case PlanStage::kRecordGeneration:
      return "record-generation";
    case PlanStage::kStartWorkers:
      return "start-workers";
    case PlanStage::kMeetNodes:
      return "meet-nodes";
    case PlanStage::kRequeue:
      return "requeue";
  }
  return "unknown";
}

const char* to_string(NodeState state) {
  switch (state) {
    case NodeState::kLaunching:
      return "launching";
    case NodeState::kUp:
      return "up";
    case NodeState::kDown:
      return "down";
    case NodeState::kEnding:
      return "ending";
    case NodeState::kEnded:
      return "ended";
  }
  return "unknown";
}

const char* to_string(NodeRole role) {
  switch (role) {
    case NodeRole::kActive:
      return "active";
    case NodeRole::kSpare:
      return "spare";
    case NodeRole::kLost:
      return "lost";
    case NodeRole::kQuarantined:
      return "quarantined";
  }
  return "unknown";
}

int32_t wanted_standbys(const Job& job, NodeRole role) {
  const RecoverySpec& recovery = job.spec.recovery;
  const bool any = job.spec.train ? recovery.standbys > 0 : !recovery.standby_imports.empty();
  if (!any || (role != NodeRole::kActive && role != NodeRole::kSpare)) return 0;
  // All ranks of a command are started again, whichever of them died; a spare gets all of a node's.
  const bool some_suffice = job.spec.train && role == NodeRole::kActive;
  return some_suffice ? static_cast<int32_t>(recovery.standbys) : job.spec.workers_per_node;
}

const char* to_string(SlotState state) {
  switch (state) {
    case SlotState::kPending:
      return "pending";
    case SlotState::kRunning:
      return "running";
    case SlotState::kExited:
      return "exited";
  }
  return "unknown";
}

std::string signal_name(int32_t signal) {
  // Linux numbers on x86-64 and arm64; a controller may read reports of another machine.
  struct Name {
    int32_t signal;
    const char* name;
  };
  static constexpr std::array<Name, 13> kNames = {{{1, "SIGHUP"},
                                                   {2, "SIGINT"},
                                                   {3, "SIGQUIT"},
                                                   {4, "SIGILL"},
                                                   {6, "SIGABRT"},
                                                   {7, "SIGBUS"},
                                                   {8, "SIGFPE"},
                                                   {9, "SIGKILL"},
                                                   {11, "SIGSEGV"},
                                                   {13, "SIGPIPE"},
                                                   {15, "SIGTERM"},
                                                   {19, "SIGSTOP"},
                                                   {24, "SIGXCPU"}}};
  for (const Name& n : kNames) {
    if (n.signal == signal) return n.name;
  }
  return "signal " + std::to_string(signal);
}

}  // namespace hpctl::core
