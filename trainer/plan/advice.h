// SPDX-License-Identifier: Apache-2.0
// Changes of a job that make it fit, or make it faster: a search over strategy, activation
// checkpointing, micro-batch, chunked logits and number of nodes with the two plans.
//
// Changes build on one another: each is listed with its effect on a job that has the earlier ones,
// those that save memory first. So no line advises a change that only another line makes possible.
//
// The advised job also fits on the fewest nodes that the job may go on with, like the choice of
// `auto` (automatic.h): a job that shrinks must not end for lack of memory. Only if nothing fits
// there, the advice is for all nodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/gpu_models.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {

struct Change {
  std::string change;  // "workload.train.memory.activation_checkpointing: full"
  std::string reason;  // with its effect after the changes before it
};

struct Advice {
  std::vector<Change> changes;         // all together
  std::vector<Change> instead;         // another way, slower: one change at most
  std::optional<PlanSetting> setting;  // with all `changes`; none when nothing makes the job fit
  bool on_all_nodes = false;           // only: nothing fits on the fewest
};

// Part of the memory that a plan may fill: the rest is the program's, the libraries' and the
// allocator's.
inline constexpr double kUsableMemory = 0.90;

// No changes when the job fits and nothing better was found. `strategies`: those to choose from.
// `memory_bytes` of a worker.
Advice advise(const PlanSetting& setting, const std::vector<Block>& blocks, const GpuModel& device,
              double memory_bytes, const std::vector<Strategy>& strategies);

}  // namespace hpctl
