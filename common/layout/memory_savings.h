// SPDX-License-Identifier: Apache-2.0
// What the keys below `memory` take off a worker's memory. The engine and the plan both follow
// this.
#pragma once

#include <cstdint>

#include "common/job/train_spec.h"

namespace hpctl {

// Elements of an offloaded state that pass through a GPU at a time, at most: 16 MiB of fp32, enough
// for a link's full bandwidth.
inline constexpr int64_t kOffloadPiece = int64_t{1} << 22;

// Returns whether a layer (from 0) runs forward once more in the backward pass.
bool is_recomputed(const TrainSpec& train, int64_t layer);

// The parts that leave a GPU for host memory (memory.offload); parameters never without the
// optimizer.
bool offloads_optimizer(const TrainSpec& train);
bool offloads_parameters(const TrainSpec& train);
bool offloads_activations(const TrainSpec& train);

}  // namespace hpctl
