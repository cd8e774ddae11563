// SPDX-License-Identifier: Apache-2.0
// How fast the ranks of a job are: even, but for noise, single long steps, steps in which all are
// slow, and nodes or ranks that are slower than the others, for ever or for some steps. What a rank
// takes is a function of the seed, the generation, the rank and the step. So it takes no numbers
// from the generator that the faults are drawn from, and a seed without slowness is as it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/rng.h"

namespace hpctl::sim {

inline constexpr uint64_t kForEver = UINT64_MAX;

// A node, or one rank of it, takes `times` as long for the steps [from, until).
struct SlowPart {
  std::string node;
  int32_t local_rank = -1;  // -1 = all
  double times = 1;
  uint64_t from = 0;
  uint64_t until = kForEver;
};

struct Pace {
  uint64_t seed = 0;
  double noise = 0;      // each step takes up to so much more or less, as a share
  double long_step = 0;  // probability that a step takes a rank kLongTimes as long
  uint64_t all_slow_from = 0;
  uint64_t all_slow_until = 0;
  std::vector<SlowPart> slow;
  bool is_drawn = false;  // otherwise steps take what they took before there was a pace

  // Of what does not depend on luck, and is not the same for all ranks.
  double slowness(const std::string& node, int32_t local_rank, uint64_t step) const;
  bool are_all_slow(uint64_t step) const { return all_slow_from <= step && step < all_slow_until; }
  // What the rank takes for its part of the step, by what it usually takes.
  double share(uint64_t generation, const std::string& node, int32_t local_rank, int32_t rank,
               uint64_t step) const;
  // Whether such slowness stands out of the noise for certain, by the rules of straggler.h.
  bool is_clear(double slowness) const;
  // Whether an even node is seen to be as the others are, in every round.
  bool is_quiet() const;
};

Pace draw_pace(Rng& rng, int32_t nodes, int32_t workers_per_node, uint64_t steps);

}  // namespace hpctl::sim
