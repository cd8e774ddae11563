// SPDX-License-Identifier: Apache-2.0
// Faults, and the recovery from them.
#pragma once

#include <string>

#include "controller/core/transition.h"

namespace hpctl::core {

// A rule reports a fault; what becomes of it is judged afterwards.
void fault_seen(Transition& t, const Job& job, const Fault& fault, FaultKind kind);
void judge_fault(Transition& t, Job& job, const Fault& fault, FaultKind kind);
// A new generation is prepared although nothing is wrong: it counts as no restart, and the workers
// save first where their memory will not do for it.
void recover_in_order(Transition& t, Job& job, const std::string& reason);
// It has come further since the last recovery.
bool has_progressed(const Transition& t, const Job& job);
// A restart now would neither be the last nor follow another one without progress between.
bool can_afford_restart(const Transition& t, const Job& job);
// No cause of the consequence was reported while the workers stopped: the job ends with that one.
void end_without_cause(Transition& t, Job& job);
// The checkpoint directory could not be used: looks again after a back-off, for limits.storage;
// then the job has failed.
void retry_plan(Transition& t, Job& job, const std::string& cause);
// The evidence against a lost node.
enum class Evidence {
  kSlow,         // only that a limit has passed, or that its launch was refused for the job
  kBroken,       // it fell silent, ended, or could not be launched
  kUnreachable,  // it fell silent, and its machine does not answer
};
// The node's present life is over: its slots, actions and state say so.
void lose_node(Transition& t, Job& job, Node& node, const std::string& cause,
               Evidence evidence = Evidence::kBroken);
// Storage failed before the node was launched: that is no attempt and nobody's fault. A job that
// waits for the node waits for storage, for limits.storage.
void postpone_launch(Transition& t, Job& job, Node& node, const std::string& cause);
// This very event has shown a hang: of what is ended because of it, stacks are of use.
bool has_just_hung(const Transition& t, const Job& job);
void judge_loss(Transition& t, Job& job, const Facts::LostNode& lost);
void bring_back(Transition& t, Job& job, const Facts::LostNode& lost);

}  // namespace hpctl::core
