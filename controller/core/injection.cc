// SPDX-License-Identifier: Apache-2.0
// Injected faults (`hpctl chaos`): whether the job allows them and has the target. No row changes:
// no decision depends on whether a fault was injected, and the injection itself gives no blame.
#include "controller/core/injection.h"

#include "controller/core/plan.h"
#include "controller/core/quarantine.h"
#include "controller/core/rules.h"

namespace hpctl::core {

namespace {

std::string find_conflict(const Job* job, const FaultInjected& e) {
  if (std::string conflict = order_conflict(job, e.job, e.uid); !conflict.empty()) return conflict;
  return job->spec.chaos ? "" : "job " + to_string(e.job) + " " + kAllowsNoChaos;
}

std::string find_rank_conflict(Transition& t, const FaultInjected& e) {
  const Slot* slot = t.slot(e.job, e.rank);
  if (slot == nullptr || slot->node.empty()) {
    return "job " + to_string(e.job) + " has no rank " + to_string(e.rank);
  }
  if (slot->state != SlotState::kRunning) {
    return "no worker of rank " + to_string(e.rank) + " runs now";
  }
  return "";
}

std::string find_node_conflict(Transition& t, const FaultInjected& e, const std::string& name) {
  const Node* node = t.node(e.job, name);
  if (node == nullptr) return "job " + to_string(e.job) + " has no node \"" + name + "\"";
  if (node->state != NodeState::kUp) return name + " is " + to_string(node->state);
  if (!node->connected) return "the agent of " + name + " is not connected now";
  return "";
}

// A checkpoint is damaged when it is looked for after this generation.
std::string find_checkpoint_conflict(const Job& job) {
  if (!is_training(job)) return "the job does not train now";
  return job.committed_step == 0 ? "the job has no checkpoint yet" : "";
}

}  // namespace

std::string find_lasting_conflict(const Job& job, InjectedFault fault) {
  const auto& train = job.spec.train;
  // A user's program does not understand orders for the trainer.
  if (is_told_to_trainer(fault) && !train) {
    return "only the built-in trainer can do that; kill-worker, stop-worker and "
           "crash-worker attack any program";
  }
  if (fault == InjectedFault::kNanGradient && train->precision == Precision::kFp16) {
    return "with precision fp16 such a step is an overflow of the loss scale, which the job's "
           "history does not show; attack one with bf16 or fp32";
  }
  if (fault == InjectedFault::kFlipParameter && !train->memory.offload.empty()) {
    return "with memory.offload a step computes with a copy of its parameters, made before";
  }
  const bool of_peers = fault == InjectedFault::kDelayCollectives ||
                        fault == InjectedFault::kLoseCollectives ||
                        fault == InjectedFault::kCutPeers;
  if (of_peers && job.world_size() < 2) return "its only rank has no peers";
  if (fault != InjectedFault::kCorruptCheckpoint) return "";
  if (!train) return "only checkpoints of the built-in trainer are read by hpctl";
  if (parts_of_state(job) < job.world_size()) {
    return "its ranks have replicas, and go on from their memory; no checkpoint would be read";
  }
  if (job.spec.recovery.snapshot.replicas > 0 && job.nodes() > 1) {
    return "copies of the state are at peers, and it goes on from them; no checkpoint would be "
           "read (recovery.snapshot.replicas: 0 has none)";
  }
  return "";
}

void on(Transition& t, const FaultInjected& e) {
  const Job* job = t.job(e.job);
  std::string conflict = find_conflict(job, e);
  if (conflict.empty()) conflict = find_lasting_conflict(*job, e.fault);
  std::string node = e.node;
  if (conflict.empty() && target_of(e.fault) == FaultTarget::kRank) {
    conflict = find_rank_conflict(t, e);
    if (conflict.empty()) node = t.slot(e.job, e.rank)->node;
  }
  if (conflict.empty() && target_of(e.fault) != FaultTarget::kController) {
    conflict = find_node_conflict(t, e, node);
  }
  if (conflict.empty() && e.fault == InjectedFault::kCorruptCheckpoint) {
    conflict = find_checkpoint_conflict(*job);
  }
  if (conflict.empty()) return;
  t.result().log.clear();  // it did not happen
  t.refuse(e.job, std::string(to_word(e.fault)) + " was not injected: " + conflict, node,
           e.rank.value);
}

void on(Transition& t, const FaultNotInjected& e) {
  if (t.job(e.job) == nullptr) t.refuse(e.job, "there is no job " + to_string(e.job));
}

}  // namespace hpctl::core
