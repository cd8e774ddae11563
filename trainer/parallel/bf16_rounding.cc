// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/bf16_rounding.h"

#include <bit>

namespace hpctl {

void round_to_bf16(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    to[i] = static_cast<uint16_t>(nan ? 0x7fc0U : rounded);
  }
}

}  // namespace hpctl
