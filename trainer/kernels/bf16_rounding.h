// SPDX-License-Identifier: Apache-2.0
// fp32 to bf16 and fp16, as parameters are rounded on their way into a gather and moments on their
// way into the state arena.
#pragma once

#include <cstdint>

#include "trainer/kernels/bf16.h"

namespace hpctl {

// Round to nearest, ties to even; NaN stays NaN. `to` receives the upper halves of the rounded
// fp32 bit patterns, which is what c10::BFloat16 holds.
void round_to_bf16(const float* from, uint16_t* to, int64_t count);
// Likewise to IEEE binary16, with its subnormals; too large becomes infinite.
void round_to_fp16(const float* from, uint16_t* to, int64_t count);

}  // namespace hpctl
