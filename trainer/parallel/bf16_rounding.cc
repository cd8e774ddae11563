// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/bf16_rounding.h"

namespace hpctl {

void round_to_bf16(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = bf16_of(from[i]);
}

}  // namespace hpctl
