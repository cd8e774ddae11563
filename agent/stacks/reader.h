// SPDX-License-Identifier: Apache-2.0
// Reads the stacks of ranks: halts all their processes, reads, and lets them go. Reading stops
// after kReadLimitMs.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/stacks/rank_stacks.h"

namespace hpctl::stacks {

inline constexpr int64_t kHaltLimitMs = 500;
inline constexpr int64_t kReadLimitMs = 1'500;
// For each rank: a worker that is a shell has the program as its child.
inline constexpr size_t kMostProcesses = 4;

// Each rank has its worker's process; adds those that it started itself.
void find_processes(std::vector<RankStacks>& ranks);
// Of these processes.
void read_stacks(std::vector<RankStacks>& ranks);

}  // namespace hpctl::stacks
