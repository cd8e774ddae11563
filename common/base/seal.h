// SPDX-License-Identifier: Apache-2.0
// Names a sealed state of a rank in its arena (arena_header.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hpctl {

// An arena has no more: of its own rank's states, and of those that it keeps for another rank
// (common/base/snapshot_peers.h).
inline constexpr size_t kOwnSlots = 4;
inline constexpr size_t kCopySlots = 2;
inline constexpr size_t kArenaSlots = kOwnSlots + kCopySlots;

// Ranks whose seals are equal hold parts of one state: the digest is of all that the coming steps
// depend on beside the state itself (data order, skip list, loss scale), which is the same on all
// ranks.
struct Seal {
  uint64_t step = 0;  // completed
  uint64_t digest = 0;
  uint64_t generation = 0;  // that sealed it
  bool operator==(const Seal&) const = default;
};

// What one arena has, newest first. Every state is divided into `parts`.
struct ArenaSeals {
  std::vector<Seal> own;
  std::vector<Seal> copies;
  int32_t part = 0;          // own states are this one of the parts
  int32_t parts = 0;         // 0 = there is no arena
  int32_t copied_part = -1;  // copies are this one; -1 = it keeps none
  bool operator==(const ArenaSeals&) const = default;
};

}  // namespace hpctl
