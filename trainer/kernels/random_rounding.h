// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of fp32 to bf16: up or down, with probabilities that make the expected result
// the number itself. Rounding to nearest loses every change below half a unit in the last place of
// bf16, so a number that changes slowly never changes. Rounded stochastically it moves as fast as
// in fp32, on average.
//
// The random bits are a hash of a counter and not a sequence: of the job's seed, the step, the
// block, and the element's place in the block. So they are the same again after a restart, on any
// number of ranks, in vectors of any width, and on a GPU (device/optimizer.cuh has the same hash).
// Another hash would change the bits of every job that keeps state in bf16.
#pragma once

#include <cstdint>

namespace hpctl {

// The random bits of neighbouring elements of a block: `low` and `high` are of seed, step and
// block; `first` is the place of the first element in the block, modulo 2^32.
struct RandomBits {
  uint32_t low;
  uint32_t high;
  uint32_t first;
};

// Mixes 32 bits, one to one (the constants are lowbias32's: Wellons 2018). `extra` is mixed in
// between.
[[gnu::always_inline]] inline uint32_t mix32(uint32_t x, uint32_t extra) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= (x >> 15) ^ extra;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

// 32 random bits of the element `place` places after the first one. The lower half rounds the first
// moment, the upper half the second.
[[gnu::always_inline]] inline uint32_t moment_bits(const RandomBits& bits, uint32_t place) {
  return mix32((bits.first + place) ^ bits.low, bits.high);
}

// From those, 16 more (the lower half), which round the parameter.
[[gnu::always_inline]] inline uint32_t param_bits(uint32_t moment_bits) {
  return mix32(moment_bits, 0x9e3779b9U);
}

// `random` is below 2^16: so much is added to the 16 bits that go, and a carry rounds up. Infinite
// numbers stay as they are; NaN stays NaN.
[[gnu::always_inline]] inline uint16_t bf16_at_random(float value, uint32_t random) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<uint16_t>(nan ? 0x7fc0U : (bits + random) >> 16);
}

}  // namespace hpctl
