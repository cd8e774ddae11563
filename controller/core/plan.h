// SPDX-License-Identifier: Apache-2.0
// The ladder that prepares a generation (PlanStage), and the ways a job leaves it.
//
//   first generation:           kWaitNodes → kFindCheckpoint → kRecordGeneration → kStartWorkers
//   recovery:    kStopWorkers → kWaitNodes → …
//   a node lost, or the directory unusable:  kFindCheckpoint, kRecordGeneration → kWaitNodes
//   number taken by another:    kRecordGeneration → kFindCheckpoint
//   a fault after the record:   recovery again
//   an end that saves first:    kStopWorkers → kFindCheckpoint → kRecordGeneration → kStartWorkers
//
// This file has the moves of reconcile() and their parts. A move completes the rows of one stage
// and issues its actions; the table decides whether another follows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/job/duration_text.h"
#include "controller/core/transition.h"

namespace hpctl::core {

// ---- stages (plan.cc) ---------------------------------------------------------------------------

void enter_stage(Transition& t, Job& job, PlanStage stage);
void enter_stop_workers(Transition& t, Job& job);
void enter_wait_nodes(Transition& t, Job& job);
void enter_find_checkpoint(Transition& t, Job& job, const std::string& reason);
void enter_record_generation(Transition& t, Job& job, const Facts::Origin& origin);
void start_generation(Transition& t, Job& job);
// The number of parts of the state of a job that trains; replicas have the same one
// (Mesh::part() in common/layout/mesh.h). If each rank has a different part, copies may be at
// peers (common/job/snapshot_peers.h).
int32_t parts_of_state(const Job& job);
// The newest state that is whole in what the newest generation's ranks left in memory, where the
// ranks of the coming one are.
std::optional<Facts::Origin> find_in_memory(Transition& t, const Job& job);
// For a generation that starts from memory, before its workers start: by rank, the seals of its
// place's arena. Empty if it does not.
std::vector<ArenaSeals> find_arenas_left(Transition& t, const Job& job);
// Brings up a node that is down, unless the job or the node is backing off.
void launch(Transition& t, Job& job, Node& node, const std::string& reason);
// The generation has completed a step (train) or all its workers are up (command).
void enter_running(Transition& t, Job& job, const std::string& reason);
// How long the present stage may take, as a deadline; 0 = it has none.
int64_t stage_deadline(const Job& job, int64_t now_ms);
// For a running command with some ranks that exited with 0: the deadline for the others; 0 = it has
// no such limit. Nothing else shows that a rank of a command hangs.
int64_t last_ranks_deadline(const Transition& t, const Job& job);
int64_t last_ranks_limit_ms(const Job& job);
// The ranks that have not exited with 0, in order.
std::vector<Rank> unfinished_ranks(const Transition& t, const Job& job);
// The limit for workers before the next generation.
int64_t stop_limit_ms(const Job& job);
// From an agent's word that a worker is gone to the report of its exit: the agent may be busy.
int64_t report_limit_ms(const Job& job);
// Nodes with ranks whose action of this kind is open.
std::vector<std::string> unanswered(Transition& t, const Job& job, ActionKind kind,
                                    size_t most = SIZE_MAX);
// "n1, n3, ...": at most a few names.
std::string join_some(const std::vector<std::string>& names);

// A worker says that it has completed the step; one past the end of the job is not believed.
void learn_step(Job& job, uint64_t step);

// The workers that are being stopped save the step under way, and no others follow here.
bool saves_and_leaves(const Job& job);

// ---- the end (jobs.cc) --------------------------------------------------------------------------

// The node is gone for good, and its workers with it.
void node_ended(Transition& t, Node& node, const std::string& reason);
void end_job(Transition& t, Job& job, JobState state, const std::string& reason);

}  // namespace hpctl::core
