// SPDX-License-Identifier: Apache-2.0
// The order of the data: a pure function of (seed, global sample number).
//
// Sample number i, counted from 0 over the whole job, belongs to epoch i / windows and is the
// window permute(i % windows) of that epoch's permutation. The permutation is a balanced Feistel
// network over the smallest power of four that holds the domain, with cycle walking: applied again
// until the value falls inside. Nothing is stored and nothing is shuffled in memory, any sample can
// be computed alone, and no rank, world size or restart enters. docs/formats.md gives the formulas;
// tests hold golden values, because a change of order silently breaks every resumed job.
#pragma once

#include <array>
#include <cstdint>

namespace hpctl {

// A keyed bijection of [0, size). Cheap to construct and to copy.
class Permutation {
 public:
  // size >= 1.
  Permutation(uint64_t size, uint64_t key);
  // index < size; the result is < size.
  uint64_t operator()(uint64_t index) const;

 private:
  static constexpr int kRounds = 8;
  uint64_t feistel(uint64_t value) const;

  uint64_t size_;
  uint32_t half_bits_;
  std::array<uint64_t, kRounds> round_keys_{};
};

// The window of the corpus for sample number `sample`. windows >= 1.
uint64_t window_of_sample(uint64_t seed, uint64_t windows, uint64_t sample);

}  // namespace hpctl
