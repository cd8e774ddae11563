// SPDX-License-Identifier: Apache-2.0
// fp32 to bf16, as parameters are rounded on their way into a gather.
#pragma once

#include <cstdint>

namespace hpctl {

// Round to nearest, ties to even; NaN stays NaN. `to` receives the upper halves of the rounded
// fp32 bit patterns, which is what c10::BFloat16 holds.
void round_to_bf16(const float* from, uint16_t* to, int64_t count);

}  // namespace hpctl
