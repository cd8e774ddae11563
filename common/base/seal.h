// SPDX-License-Identifier: Apache-2.0
// Names a sealed state of a rank in its arena (arena_header.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hpctl {

// An arena has no more.
inline constexpr size_t kArenaSlots = 2;

// Ranks whose seals are equal hold parts of one state: the digest is of all that the coming steps
// depend on beside the state itself (data order, skip list, loss scale), which is the same on all
// ranks.
struct Seal {
  uint64_t step = 0;  // completed
  uint64_t digest = 0;
  uint64_t generation = 0;  // that sealed it
  bool operator==(const Seal&) const = default;
};

}  // namespace hpctl
