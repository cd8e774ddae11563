// SPDX-License-Identifier: Apache-2.0
// Which node has which ranks: spares, growth, loss for good, and the members of an adopted
// generation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/core/transition.h"

namespace hpctl::core {

// ---- which node has which ranks (membership.cc) -------------------------------------------------

// Nodes with ranks that are not up, or quarantined: the next generation cannot start with them.
std::vector<Node*> nodes_missing(Transition& t, const Job& job, size_t most = SIZE_MAX);
// A spare is up, and recovery.on_node_loss lets it take over.
bool has_spare(Transition& t, const Job& job);
// One that the scheduler does not drain.
bool has_lasting_spare(Transition& t, const Job& job);
// Spares that are up take the ranks of nodes whose workers take long to die.
void relieve(Transition& t, Job& job, const std::vector<std::string>& slow);
// While a generation is prepared: spares that are up take the ranks of lost and quarantined nodes.
bool can_promote(Transition& t, const Job& job);
void promote_spares(Transition& t, Job& job);
// A shrunk job takes back nodes without ranks.
void grow(Transition& t, Job& job);
// A shrunk job trains, and could do so on more nodes: it interrupts itself at a step boundary for
// that, which is no restart.
bool can_grow(Transition& t, const Job& job);
void grow_at_boundary(Transition& t, Job& job);
// How often a lost node is launched before the next reaction.
int64_t launch_patience(Transition& t, const Job& job);
// The node did not come back: recovery.on_node_loss, or another restart of the job.
void give_up_node(Transition& t, Job& job, Node& node, const Fault& fault);
// Nodes with ranks that are quarantined, or taken from the job, and no spare is left: the same.
void vacate_quarantined(Transition& t, Job& job);
// The scheduler took a node without ranks from the job.
void tell_spares_left(Transition& t, const Job& job, const Node& taken);
// Could the job go on without that node?
bool can_vacate(Transition& t, const Job& job, const Node& node);
// Why an order to leave the node is refused if it `asks_first`: the job would be requeued. "" =
// not.
std::string unasked_requeue(Transition& t, const Job& job, const Node& node, bool asks_first);
// The consequence of leaving the node: "the job is requeued ...".
std::string consequence_of_leaving(Transition& t, const Job& job, const Node& node);
// After a requeue that was to exclude nodes: where the job has some of them nevertheless and needs
// them, it is requeued once more. False = it goes on.
bool exclude_again(Transition& t, Job& job, const RequeueCarryover& former);
void refuse_requeue(Transition& t, Job& job, const std::string& reason);
// The job is to go on after its time limit: its workers save and end, then it is requeued.
void save_for_requeue(Transition& t, Job& job, const std::string& reason);
void requeue_saved(Transition& t, Job& job);

// ---- adoption (adopt.cc) ------------------------------------------------------------------------

// While nodes of an adopted generation are met: what lives there.
void meet_workers(Transition& t, const Job& job, Node& node, const AgentRegistered& e);
// Every member is up, and what lives there is known.
bool members_are_met(Transition& t, const Job& job);
void end_meeting(Transition& t, Job& job);

}  // namespace hpctl::core
