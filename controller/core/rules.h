// SPDX-License-Identifier: Apache-2.0
// One rule per event. A rule decides whether the event fits, and records it: in rows, and as Facts
// if it has consequences. reconcile() decides the consequences.
#pragma once

#include "controller/core/transition.h"

namespace hpctl::core {

// jobs.cc
void on(Transition& t, const JobSubmitted& e);
void on(Transition& t, const CancelRequested& e);
void on(Transition& t, const JobRemoved& e);
// nodes.cc
void on(Transition& t, const NodeLaunched& e);
void on(Transition& t, const AgentRegistered& e);
void on(Transition& t, const AgentDisconnected& e);
void on(Transition& t, const NodeLost& e);
void on(Transition& t, const NodeEnded& e);
void on(Transition& t, const NodeReturned& e);
// adopt.cc
void on(Transition& t, const JobAdopted& e);
// quarantine.cc
void on(Transition& t, const QuarantineRequested& e);
void on(Transition& t, const ReleaseRequested& e);
void on(Transition& t, const SpareFoundUnfit& e);
void on(Transition& t, const SpareReady& e);
void on(Transition& t, const NodeDeparts& e);
// hardware.cc
void on(Transition& t, const RecoveryRequested& e);
void on(Transition& t, const HardwareFaultFound& e);
void on(Transition& t, const NodeReplacementRequested& e);
// membership.cc
void on(Transition& t, const JobRequeued& e);
void on(Transition& t, const SchedulerObserved& e);
void on(Transition& t, const ControllerNoted& e);
// generations.cc
void on(Transition& t, const CheckpointChosen& e);
void on(Transition& t, const GenerationRecorded& e);
void on(Transition& t, const GenerationTaken& e);
void on(Transition& t, const GenerationProgressed& e);
void on(Transition& t, const CheckpointCommitted& e);
// prune.cc
void on(Transition& t, const CheckpointRoomNeeded& e);
void on(Transition& t, const CheckpointsPruned& e);
void on(Transition& t, const CheckpointMirrored& e);
// second_reader.cc
void on(Transition& t, const DamageAnswered& e);
// workers.cc
void on(Transition& t, const WorkersStarted& e);
void on(Transition& t, const WorkersStopped& e);
void on(Transition& t, const WorkerExited& e);
void on(Transition& t, const WorkersExited& e);
void on(Transition& t, const HangDetected& e);
// bad_steps.cc
void on(Transition& t, const BadStepFound& e);
// slow_nodes.cc
void on(Transition& t, const StragglerFound& e);
void on(Transition& t, const StragglerOver& e);
// failures.cc
void on(Transition& t, const ActionFailed& e);
// injection.cc
void on(Transition& t, const FaultInjected& e);
void on(Transition& t, const FaultNotInjected& e);
// timers.cc
void on(Transition& t, const ControllerResumed& e);
void on(Transition& t, const TrainingSeen& e);
void on(Transition& t, const Tick& e);
void on(Transition& t, const SuspensionChanged& e);

// The event's own line of the history, made before its rule runs (describe.cc).
LogEntry describe(const State& state, const Event& event);

}  // namespace hpctl::core
