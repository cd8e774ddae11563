// SPDX-License-Identifier: Apache-2.0
// What to change in a job so that it fits, or is faster: a search over strategy, activation
// checkpointing, micro-batch, chunked logits and number of nodes with the two plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/gpu_models.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {

struct Advice {
  std::string change;  // "workload.train.memory.activation_checkpointing: full"
  std::string reason;
};

// Part of the memory that a plan may fill: the rest is the program's, the libraries' and the
// allocator's.
inline constexpr double kUsableMemory = 0.90;

// Empty when the job fits and nothing better was found. `strategies`: those to choose from.
// `memory_bytes` of a worker.
std::vector<Advice> advise(const PlanSetting& setting, const std::vector<Block>& blocks,
                           const GpuModel& device, double memory_bytes,
                           const std::vector<Strategy>& strategies);

}  // namespace hpctl
