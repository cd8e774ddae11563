// SPDX-License-Identifier: Apache-2.0
// The beginning of a state arena (trainer/state/state_arena.h), which holder and worker share.
// After the worker has died, the seals can be read without LibTorch.
//
// Bytes, native endianness:
//
//   0      ArenaHeader (kArenaHeaderBytes): magic, version, geometry, slot headers
//   4096   notes of slot 0 (kArenaNotesBytes, or more where the job's geometry says so): what goes
//          with that state (training_state.cc)
//   ...    notes of the other slots
//   ...    the states themselves: of the slots that are in use
//
// Slots 0 to kOwnSlots - 1 are this rank's own. The slots after them keep copies of another rank's
// states.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/worker/seal.h"

namespace hpctl {

inline constexpr uint64_t kArenaMagic = 0x31414e4552415048ULL;  // "HPARENA1"
inline constexpr uint32_t kArenaVersion = 9;
inline constexpr size_t kArenaHeaderBytes = 4096;
inline constexpr size_t kArenaNotesBytes = 65536;
inline constexpr uint64_t kUnsealed = ~uint64_t{0};

struct ArenaSlotHeader {
  std::atomic<uint64_t> step;  // completed steps of the sealed state; kUnsealed = do not use
  uint64_t digest;             // valid when sealed, as is what follows
  uint64_t generation;         // that sealed it
  uint64_t notes_bytes;
  uint64_t reserved[4];
};
static_assert(sizeof(ArenaSlotHeader) == 64);

struct ArenaHeader {
  uint64_t magic;
  uint32_t version;
  int32_t reserved_number;
  int32_t copied_index;     // which part the copies are; -1 = it keeps none
  uint32_t moment_bytes;    // per element of exp_avg and exp_avg_sq: 4 = fp32, 2 = bf16
  uint64_t shard_elements;  // per kind and slot
  uint64_t layout_hash;     // of the block layout: names, shapes, offsets
  uint64_t job;
  int32_t shard_index;  // which of shard_count parts of every block this is
  int32_t shard_count;
  uint32_t param_bytes;  // likewise per element of the parameters
  uint32_t reserved;
  ArenaSlotHeader slots[kArenaSlots];  // at byte 64
};
static_assert(offsetof(ArenaHeader, slots) == 64);
static_assert(sizeof(ArenaHeader) <= kArenaHeaderBytes);

// For an arena whose worker has died or idles. Empty if there is no arena, and if the state is not
// in it (a GPU's without copies).
ArenaSeals read_seals(int arena_fd);

}  // namespace hpctl
