// SPDX-License-Identifier: Apache-2.0
// Jobs of known models on nodes of eight GPUs, of which the tests of the plan know the figures.
#pragma once

#include <cstdint>
#include <vector>

#include "common/job/train_spec.h"
#include "trainer/arch/registry.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl::test {

inline constexpr double kGiB = 1024.0 * 1024 * 1024;
// All but hybrid, which needs groups.
inline const std::vector<Strategy> kStrategies = {Strategy::kNoShard, Strategy::kOptimizer,
                                                  Strategy::kShardGradOp, Strategy::kFull};

inline PlanSetting planned_job(const char* preset, int32_t nodes, int64_t global) {
  PlanSetting s;
  s.train.model = *model_preset(preset);
  s.train.data.seq_len = 8192;
  s.train.batch.global = global;
  s.nodes = nodes;
  s.workers_per_node = 8;
  s.gpu = true;
  return s;
}

// Bytes of a worker that trains the model itself.
inline double total_of(const PlanSetting& s) {
  return plan_memory(s, model_layout(s.train.model)).total();
}

}  // namespace hpctl::test
