// SPDX-License-Identifier: Apache-2.0
// Gives each communicator of a rank a slot of the worker's progress page, which says whose
// collectives are counted there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/worker/worker_abi.h"
#include "trainer/comm/communicator.h"

namespace hpctl {

// `options` of the communicator of such a group, with the first free slot. Where none is free, the
// page does not count this group. `first` and `last` are ranks of the world.
inline CommunicatorOptions with_slot(CommunicatorOptions options, GroupKind kind, int32_t first,
                                     int32_t last) {
  if (options.groups == nullptr) return options;
  for (size_t slot = 0; slot < kGroupSlots; ++slot) {
    GroupSlot& free = options.groups->slots[slot];
    if (free.kind.load(std::memory_order_relaxed) != 0) continue;
    free.first.store(first, std::memory_order_relaxed);
    free.last.store(last, std::memory_order_relaxed);
    free.kind.store(static_cast<uint32_t>(kind), std::memory_order_release);
    options.slot = slot;
    return options;
  }
  options.groups = nullptr;
  return options;
}

}  // namespace hpctl
