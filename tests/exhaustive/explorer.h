// SPDX-License-Identifier: Apache-2.0
// Tries every sequence of moves from a world, depth first, and no world twice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/exhaustive/world.h"

namespace hpctl::exhaustive {

struct Bounds {
  int32_t depth = 0;    // moves; 0 = as many as there are
  uint64_t states = 0;  // stops there, and what it found is not exhaustive; 0 = no bound
};

struct Finding {
  std::string violation;     // "" = none
  std::vector<Move> trace;   // to it; where it is beyond the bound, a healthy cluster goes on there
  bool is_complete = false;  // all of the scope was tried
  uint64_t states = 0;
  uint64_t transitions = 0;
  int32_t deepest = 0;
  uint64_t ends = 0;              // worlds whose job has ended
  uint64_t ends_in_memory = 0;    // of those some generation of which went on in memory
  uint64_t ends_from_mirror = 0;  // likewise, from the mirror
  uint64_t cut_off = 0;  // worlds at the bound, from each of which a healthy cluster went on
};

// The rules are asked at each world; that the job ends well, at each end, and from each world at
// the bound of depth, with no further fault and in one order. A circle of moves without a fault is
// a violation too, and so is a world in which nothing can happen.
Finding explore(const World& start, const Bounds& bounds);

// Makes the moves, and then those of a healthy cluster until the job has ended, where `to_the_end`.
// `tell` prints each move with what the core made of it. Returns the first violation.
std::string replay(World world, const std::vector<Move>& moves, bool to_the_end, bool tell);

}  // namespace hpctl::exhaustive
