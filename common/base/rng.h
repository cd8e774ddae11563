// SPDX-License-Identifier: Apache-2.0
// A small seeded generator (SplitMix64: Steele, Lea, Flood 2014) for simulation, tests, data order
// and jitter. Same seed, same sequence, on every platform. Not for keys or tokens.
#pragma once

#include <cstdint>

namespace hpctl {

// The finaliser of SplitMix64: a bijective mix of 64 bits.
constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ULL); }
  // Uniform in [0, bound); bound > 0. The bias of the plain modulus is below 2^-32 for our bounds.
  uint64_t below(uint64_t bound) { return next() % bound; }
  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return uniform() < probability; }

 private:
  uint64_t state_;
};

}  // namespace hpctl
