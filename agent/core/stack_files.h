// SPDX-License-Identifier: Apache-2.0
// How the files are named that have the stacks of ranks: "g3-rank0007.txt".
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace hpctl::agent {

// rank: a number, or "*" for those of several ranks.
inline std::string stack_file(uint64_t generation, const std::string& rank) {
  const size_t missing = rank == "*" ? 0 : 4 - std::min<size_t>(4, rank.size());
  return "g" + std::to_string(generation) + "-rank" + std::string(missing, '0') + rank + ".txt";
}

}  // namespace hpctl::agent
