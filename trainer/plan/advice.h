// SPDX-License-Identifier: Apache-2.0
// What to change in a job so that it fits, or is faster: a search over strategy, activation
// checkpointing, micro-batch, chunked logits and number of nodes with the two plans.
//
// Changes build on one another: each is told with what it does to a job that has those before it,
// those that save memory first. So no line advises what only another line makes possible.
//
// What is advised fits on the fewest nodes that the job may go on with, too, as what is auto does
// (automatic.h): a job that shrinks must not end for want of memory. Only where nothing fits there
// is the advice for all nodes.
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
