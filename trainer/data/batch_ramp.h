// SPDX-License-Identifier: Apache-2.0
// The global batch while it ramps up: a function of the sample cursor alone, so the order of the
// data stays a function of the sample number, and a resumed job takes the same steps.
#pragma once

#include <cstdint>

#include "common/job/train_spec.h"

namespace hpctl {

// Sequences of the step that begins at sample number `cursor`.
uint64_t global_batch(const BatchSpec& batch, uint64_t cursor);

// Samples that the first `steps` steps take when none is skipped.
uint64_t samples_after(const BatchSpec& batch, uint64_t steps);

}  // namespace hpctl
