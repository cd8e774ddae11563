// SPDX-License-Identifier: Apache-2.0
// What the optimizer's decisions depend on beside the step itself. A checkpoint stores these
// records, so that a run that is repeated from it decides as before.
#pragma once

#include <cstdint>
#include <vector>

namespace hpctl {

// The inputs of the judgement of further steps (trainer/optim/stability.h).
struct StabilityRecord {
  uint64_t skips = 0;              // times that samples were put on the skip list
  std::vector<double> losses;      // of the last accepted steps, oldest first
  std::vector<double> grad_norms;  // of the same steps
  bool operator==(const StabilityRecord&) const = default;
};

// fp16: what the scale of the next step depends on (trainer/optim/loss_scaler.h).
struct LossScaleRecord {
  uint64_t scale = 0;            // a power of two; 0 = none: the run is not in fp16
  uint64_t good_steps = 0;       // without overflow, since the last overflow or growth
  uint64_t hysteresis_left = 0;  // overflows before it halves
  uint64_t overflows = 0;        // so far
  bool operator==(const LossScaleRecord&) const = default;
};

}  // namespace hpctl
