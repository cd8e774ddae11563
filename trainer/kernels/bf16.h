// SPDX-License-Identifier: Apache-2.0
// One value of bf16. Always part of the caller, so that a source that is compiled for other
// instructions than the rest (level.h) may use it.
#pragma once

#include <cstdint>

namespace hpctl {

// Rounds to nearest, ties to even; NaN stays NaN. A bf16 is the upper half of an fp32 number.
[[gnu::always_inline]] inline uint16_t bf16_of(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<uint16_t>(nan ? 0x7fc0U : rounded);
}

[[gnu::always_inline]] inline float float_of_bf16(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float wide;
  __builtin_memcpy(&wide, &bits, sizeof wide);
  return wide;
}

}  // namespace hpctl
