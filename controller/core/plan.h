// SPDX-License-Identifier: Apache-2.0
// The ladder that prepares a generation (PlanStage), and the ways a job leaves it.
//
//   first generation:           kWaitNodes → kFindCheckpoint → kRecordGeneration → kStartWorkers
//   recovery:    kStopWorkers → kWaitNodes → …
//   a node lost, or the directory unusable:  kFindCheckpoint, kRecordGeneration → kWaitNodes
//   number taken by another:    kRecordGeneration → kFindCheckpoint
//   a fault after the record:   recovery again
//
// Each function begins a stage or moves on from it; all are called from within one Step.
#pragma once

#include <string>

#include "controller/core/transition.h"

namespace hpctl::core {

// ---- stages (plan.cc) ---------------------------------------------------------------------------

void enter_stage(Transition& t, Job& job, PlanStage stage);
void enter_stop_workers(Transition& t, Job& job);
void enter_wait_nodes(Transition& t, Job& job);
void enter_find_checkpoint(Transition& t, Job& job, const std::string& reason);
// Moves on when nothing is waited for any more; for every stage that waits for several nodes.
void advance(Transition& t, Job& job);
// Brings up a node that is down, unless the job or the node is backing off.
void launch(Transition& t, Job& job, Node& node, const std::string& reason);
// The generation has completed a step (train) or all its workers are up (command).
void enter_running(Transition& t, Job& job, const std::string& reason);
// How long the present stage may take, as a deadline; 0 = it has none.
int64_t stage_deadline(const Job& job, int64_t now_ms);
// "n1, n3, ...": at most a few names.
std::string join_some(const std::vector<std::string>& names);

// "20 s", "1500 ms"
std::string duration_text(int64_t ms);

// True while no worker of a new generation can have been started: a further fault belongs to the
// recovery in progress.
bool is_preparing(const Job& job);

// ---- faults (recovery.cc) -----------------------------------------------------------------------

enum class FaultKind {
  kCause,       // starts a recovery; while one is being prepared it belongs to that one
  kCollateral,  // a consequence of another fault whose report may still arrive
  kRepeated,    // starts another recovery even while one is being prepared: retries did not help
  kDamage,      // a checkpoint could not be used; bounded by the number of checkpoints
};
void fault_seen(Transition& t, Job& job, const Fault& fault, FaultKind kind);
// The checkpoint directory could not be used: looks again after a back-off, kMaxPlanAttempts times;
// then it is a fault.
void retry_plan(Transition& t, Job& job, const std::string& cause);
// The node's present life is over: slots, actions and state follow; then fault_seen.
void lose_node(Transition& t, Job& job, Node& node, const std::string& cause);

// ---- the end (jobs.cc) --------------------------------------------------------------------------

// The node is gone for good, and its workers with it.
void node_ended(Transition& t, Node& node, const std::string& reason);
void end_job(Transition& t, Job& job, JobState state, const std::string& reason);

}  // namespace hpctl::core
