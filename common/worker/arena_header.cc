// SPDX-License-Identifier: Apache-2.0
#include "common/worker/arena_header.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "common/base/plausible.h"

namespace hpctl {

namespace {

std::vector<Seal> sealed(std::span<const ArenaSlotHeader> slots) {
  std::vector<Seal> seals;
  for (const ArenaSlotHeader& slot : slots) {
    const uint64_t step = slot.step.load(std::memory_order_relaxed);
    if (step > kMaxStep || slot.generation > kMaxGeneration) continue;  // unsealed, or made up
    seals.push_back({step, slot.digest, slot.generation});
  }
  std::sort(seals.begin(), seals.end(),
            [](const Seal& a, const Seal& b) { return a.step > b.step; });
  return seals;
}

}  // namespace

// Read and not mapped: the worker can shorten the file at any moment.
ArenaSeals read_seals(int arena_fd) {
  alignas(ArenaHeader) std::array<std::byte, sizeof(ArenaHeader)> bytes{};
  if (::pread(arena_fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return {};
  }
  const auto& header = *reinterpret_cast<const ArenaHeader*>(bytes.data());
  if (header.magic != kArenaMagic || header.version != kArenaVersion) return {};
  const std::span slots(header.slots);
  return {sealed(slots.first<kOwnSlots>()), sealed(slots.last<kCopySlots>()), header.shard_index,
          header.shard_count, header.copied_index};
}

}  // namespace hpctl
