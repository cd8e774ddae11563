// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/bf16_rounding.h"

#include <bit>

namespace hpctl {

namespace {

// Branches become selections, so that the loop is one for the vectoriser.
uint16_t fp16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  // 2^-14 and more: the exponent's bias is 15 instead of 127, and 13 bits go.
  const uint32_t normal = (magnitude + 0xc8000fffU + ((magnitude >> 13) & 1U)) >> 13;
  // Less: 0.5 has 2^-24 as its last bit, which is fp16's smallest number, and the sum is rounded.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  uint32_t result = magnitude < 0x38800000U ? subnormal : normal;
  result = magnitude >= 0x47800000U ? 0x7c00U : result;  // 2^16
  result = magnitude > 0x7f800000U ? 0x7e00U : result;
  return static_cast<uint16_t>(sign | result);
}

}  // namespace

void round_to_bf16(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = bf16_of(from[i]);
}

void round_to_fp16(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = fp16_of(from[i]);
}

}  // namespace hpctl
