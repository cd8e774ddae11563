// SPDX-License-Identifier: Apache-2.0
// Nodes that get no ranks: in quarantine, drained, slow, or with broken hardware.
#pragma once

#include <string>
#include <vector>

#include "controller/core/transition.h"

namespace hpctl::core {

// ---- quarantine (quarantine.cc) -----------------------------------------------------------------

void quarantine(Transition& t, const Job& job, Node& node, const Quarantine& why);
// The ranks of a node that was quarantined go elsewhere, in a new generation.
// `in_order`: it works as yet, so what was computed is saved before.
void vacate(Transition& t, Job& job, Node& node, const std::string& cause, bool in_order = false);
// Why `uid` may not order something about the job; "" = it may.
std::string order_conflict(const Job* job, JobId id, uint32_t uid);
// Why nothing can be ordered about the node. Not only the job's owner may: operators are let in by
// controller/access.
std::string order_conflict(const Job* job, const Node* node, JobId id, const std::string& name);
void expire_quarantines(Transition& t, const Job& job);
// Quarantine::by where the scheduler drains a node that works.
inline constexpr const char* kByScheduler = "the scheduler";
// A member that trains and that the scheduler drains, while a spare can take its ranks and the job
// can afford to move; nullptr = there is none.
Node* find_drained(Transition& t, const Job& job);
void leave_drained(Transition& t, Job& job);
// The scheduler would use it again.
void end_drain(Transition& t, Job& job, Node& node);
// A worker on a node is to blame; too often in a row, and the node is quarantined.
void count_fault(Transition& t, Job& job, const Fault& fault);
// A node's own report that it cannot have ranks.
struct Unfitness {
  std::string reason;
  bool hardware = false;  // a verdict on the hardware
  bool reboot = false;    // which may mend it
};
// It is quarantined, and its ranks, if it has any, go elsewhere.
void condemn(Transition& t, Job& job, Node& node, const Unfitness& unfit);
// A successor, and the job's next life, must know them.
std::vector<QuarantinedNode> quarantined_nodes(Transition& t, const Job& job);

// ---- slow nodes (slow_nodes.cc) -----------------------------------------------------------------

// A member that holds the others up, while recovery.straggler evicts, a spare can take its ranks,
// and the job can afford to move; nullptr = there is none.
Node* find_straggler(Transition& t, const Job& job);
void leave_straggler(Transition& t, Job& job);

// ---- broken nodes (hardware.cc) -----------------------------------------------------------------

// A row that begins: what was known of the node before a requeue, or by another controller.
void remember_node(Node& row, const std::vector<QuarantinedNode>& known);
// The node registered as this instance; another one than before has no history.
void change_instance(Transition& t, const Job& job, Node& node, const std::string& instance_id);
// A recent reboot was requested: it is the same instance, and needs more than another reboot.
bool was_rebooted(const Transition& t, const Node& node);
// Completes a verdict on the hardware: a reboot, where that may help, first.
void choose_remedy(const Transition& t, const Node& node, bool reboot, Quarantine& why);
// The scheduler got no answer of the node for so long that this is a verdict on the machine.
void give_up_hardware(Transition& t, Job& job, Node& node, const std::string& evidence);
// Asks for a reboot or another instance, once, when the hardware is broken and the work has left:
// `leaves` when its ranks are to have other nodes, else its workers have ended and the ranks stay.
void recover_hardware(Transition& t, Job& job, Node& node, bool leaves);
// The node is the same instance as before and can be used again, as requested (a reboot).
void give_back(Transition& t, const Job& job, Node& node);

}  // namespace hpctl::core
