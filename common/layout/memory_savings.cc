// SPDX-License-Identifier: Apache-2.0
#include "common/layout/memory_savings.h"

#include <algorithm>

namespace hpctl {
namespace {

bool offloads(const TrainSpec& train, Offload what) {
  const std::vector<Offload>& all = train.memory.offload;
  return std::find(all.begin(), all.end(), what) != all.end();
}

}  // namespace

bool is_recomputed(const TrainSpec& train, int64_t layer) {
  const MemorySpec& memory = train.memory;
  if (memory.activation_checkpointing == Checkpointing::kFull) return true;
  return memory.activation_checkpointing == Checkpointing::kSelective && memory.every > 0 &&
         layer % memory.every == 0;
}

bool offloads_optimizer(const TrainSpec& train) {
  return offloads(train, Offload::kOptimizer) || offloads_parameters(train);
}

bool offloads_parameters(const TrainSpec& train) { return offloads(train, Offload::kParameters); }

bool offloads_activations(const TrainSpec& train) { return offloads(train, Offload::kActivations); }

}  // namespace hpctl
