// SPDX-License-Identifier: Apache-2.0
// The changes between two looks at a job and its nodes, in words. Pure; the poll of
// slurm_scheduler.h looks, and reports them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/slurm/slurm_messages.h"

namespace hpctl {

struct SlurmObservation {
  enum class Kind {
    kNote,      // for the history: a pending reason, a node's state
    kTaken,     // Slurm took the node out of the allocation: what ran there is over
    kMarked,    // FAIL: somebody wants the node to be left
    kReturned,  // the node can be used again
  };
  Kind kind = Kind::kNote;
  std::string node;  // "" = the job as a whole
  std::string what;
  bool in_allocation = true;        // the node
  bool recovery_requested = false;  // the node is to be replaced or rebooted (node_replacement.h)
  bool unresponsive = false;        // of kTaken: Slurm gave the node up because it was silent
  bool reboot_requested = false;    // of recovery_requested: to be rebooted
  auto operator<=>(const SlurmObservation&) const = default;
};

class SlurmObserver {
 public:
  // `nodes`: the job's nodes when its controller began; a node may have been taken before the first
  // look, and a successor begins because one is gone. Empty = the nodes of the first look.
  explicit SlurmObserver(std::vector<std::string> nodes = {}) : nodes_before_(std::move(nodes)) {}

  // In the order of the nodes' names, the job first. The first look is compared with a job that
  // runs undisturbed.
  std::vector<SlurmObservation> compare(const SlurmJob& job, const std::vector<SlurmNode>& nodes);

 private:
  void compare_job(const SlurmJob& job, std::vector<SlurmObservation>& out) const;
  void compare_node(const SlurmNode* before, const SlurmNode& node, bool in_allocation,
                    std::vector<SlurmObservation>& out) const;

  std::vector<std::string> nodes_before_;  // of the job
  std::optional<SlurmJob> job_;
  std::map<std::string, SlurmNode> nodes_;
};

// "DOWN+NOT_RESPONDING (Not responding)"
std::string describe_state(const SlurmNode& node);

}  // namespace hpctl
