// SPDX-License-Identifier: Apache-2.0
// fp32 to bf16 and fp16, as parameters are rounded on their way into a gather and moments on their
// way into the state arena.
#pragma once

#include <bit>
#include <cstdint>

namespace hpctl {

// Round to nearest, ties to even; NaN stays NaN. `to` receives the upper halves of the rounded
// fp32 bit patterns, which is what c10::BFloat16 holds.
void round_to_bf16(const float* from, uint16_t* to, int64_t count);
// Likewise to IEEE binary16, with its subnormals; too large becomes infinite.
void round_to_fp16(const float* from, uint16_t* to, int64_t count);

// One value of that; and the fp32 number whose upper half a bf16 is.
inline uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<uint16_t>(nan ? 0x7fc0U : rounded);
}
inline float float_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace hpctl
