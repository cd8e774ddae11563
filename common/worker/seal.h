// SPDX-License-Identifier: Apache-2.0
// Names a sealed state of a rank in its arena (arena_header.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hpctl {

// The number of slots of an arena: for its own rank's states, and for the states that it keeps for
// another rank (common/job/snapshot_peers.h).
inline constexpr size_t kOwnSlots = 4;
inline constexpr size_t kCopySlots = 2;
inline constexpr size_t kArenaSlots = kOwnSlots + kCopySlots;

// Ranks with equal seals hold parts of one state. The digest covers all other inputs of the next
// steps (data order, skip list, loss scale), which are the same on all ranks.
struct Seal {
  uint64_t step = 0;  // completed
  uint64_t digest = 0;
  uint64_t generation = 0;  // that sealed it
  bool operator==(const Seal&) const = default;
};

// The seals of one arena, newest first. Every state is divided into `parts`.
struct ArenaSeals {
  std::vector<Seal> own;
  std::vector<Seal> copies;
  int32_t part = 0;          // own states are this one of the parts
  int32_t parts = 0;         // 0 = there is no arena
  int32_t copied_part = -1;  // copies are this one; -1 = it keeps none
  bool operator==(const ArenaSeals&) const = default;
};

}  // namespace hpctl
