// SPDX-License-Identifier: Apache-2.0
// The state arena: this rank's shards of parameters and AdamW moments, in memory that outlives the
// process when the holder hands over a memfd (worker_abi.h, kArenaFd). On a GPU they are in its
// memory, in one slot, which a step overwrites in place: its memory is scarce, and bad steps are
// skipped before the update. It ends with the process; a second arena, in the memfd, has copies of
// it (host_copies.h). If the state is offloaded (offloaded_state.h), the one slot is in host memory
// from which the GPU copies, and there is no second arena.
//
// Behind the header and the notes (common/worker/arena_header.h), every part 64-byte aligned:
//
//   slot 0: parameters, exp_avg, exp_avg_sq: shard_elements each, fp32 or bf16
//           (ArenaGeometry::param_bytes, moment_bytes)
//   ...     the other slots of this rank's own states: the same
//   ...     slots of the copies that it keeps for another rank (peer_snapshots.h), if any: the same
//
// shard_elements is the sum of the blocks' shard capacities; block b's part begins at the sum of
// the capacities before it. Elements after the end of a block are zero.
//
// A step reads the slot with the newest state and writes another one, which is unsealed first and
// sealed last (its step stored with release order). So whenever the process dies, at least one slot
// is sealed and complete: the state after the last step it finished. A slot's notes hold the rest
// of its state; the arena does not interpret them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "common/base/result.h"
#include "common/layout/block_layout.h"
#include "common/layout/mesh.h"
#include "common/worker/arena_header.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/device/device.h"

namespace hpctl {

// The part of the state that a rank holds.
struct ArenaGeometry {
  uint64_t job = 0;
  int32_t shard_index = 0;  // Mesh::part()
  int32_t shard_count = 1;  // Mesh::parts()
  // Of each of its blocks it has interval `interval` of `intervals`; the same two numbers unless a
  // rank's blocks are parts of the model's.
  int32_t interval = 0;
  int32_t intervals = 1;
  uint32_t param_bytes = 4;
  uint32_t moment_bytes = 4;
  int32_t slots = 2;                      // of own states: 2 to kOwnSlots; 1 on a device
  int32_t copies = 0;                     // slots behind them, for another rank's
  int32_t copied_index = -1;              // which shard those are; -1 = there are none
  size_t notes_bytes = kArenaNotesBytes;  // room for the notes of each slot
  std::vector<int64_t> block_capacity;    // shard_capacity of each block at `intervals`
  uint64_t layout_hash = 0;

  // `blocks` are the rank's.
  static ArenaGeometry of(const std::vector<Block>& blocks, uint64_t job, int32_t rank,
                          const Mesh& mesh);
  int32_t all_slots() const { return slots + copies; }
  int64_t shard_elements() const;
  size_t element_bytes(StateKind kind) const {
    return kind == StateKind::kParam ? param_bytes : moment_bytes;
  }
  size_t slot_bytes() const;
  size_t state_at() const;  // header and notes are before it
  size_t bytes() const;
};

inline constexpr int kNoSlot = -1;

class StateArena {
 public:
  // Sizes the memory behind `fd` (not owned; -1 = anonymous memory), reserves it, maps it, and
  // writes a header with all slots unsealed. All memory is reserved here, so that a lack of it is
  // an error with a remedy now and not SIGBUS in a later step.
  static Result<StateArena> create(int fd, const ArenaGeometry& geometry);
  // Maps what a former owner, who is gone, left behind `fd`, with its seals. kDataLoss where that
  // is not an arena of this geometry.
  static Result<StateArena> open(int fd, const ArenaGeometry& geometry);
  // Likewise, however many ranks divided the rank's blocks then; slots and sharding are as found.
  // kDataLoss where it is not an arena of this job, model, part of each layer, and types.
  static Result<StateArena> open_former(int fd, const std::vector<Block>& blocks,
                                        const ArenaGeometry& geometry);
  // In memory of a device, which outlives it. Throws as Device::allocate.
  static StateArena create(Device& device, const ArenaGeometry& geometry);
  // In host memory from which that device copies (memory.offload); likewise.
  static StateArena create_offloaded(Device& device, const ArenaGeometry& geometry);
  ~StateArena();
  StateArena(StateArena&& other) noexcept;
  StateArena(const StateArena&) = delete;
  StateArena& operator=(const StateArena&) = delete;
  StateArena& operator=(StateArena&&) = delete;

  // Block b's part of one kind in one slot: geometry.block_capacity[b] elements, at an address of
  // the device. T as the kind is kept: float, or uint16_t for bf16.
  template <typename T>
  T* elements(int slot, StateKind kind, size_t block) {
    HP_CHECK(sizeof(T) == element_bytes(kind));
    return static_cast<T*>(part(slot, kind, block));
  }
  float* state(int slot, StateKind kind, size_t block) {
    return elements<float>(slot, kind, block);
  }

  // `count` elements from `first` on of block b's part as bytes, bf16 or fp32 as stored, like
  // Device::begin_download. Values read from bf16 are written back without loss.
  void begin_read(int slot, StateKind kind, size_t block, int64_t first, int64_t count,
                  std::byte* host);
  // The same where they lie, at an address of the device.
  std::byte* bytes_at(int slot, StateKind kind, size_t block, int64_t first);
  size_t element_bytes(StateKind kind) const { return geometry_.element_bytes(kind); }
  void write(int slot, StateKind kind, size_t block, int64_t first, std::span<const float> values);
  // 0 in all of the block's elements; on a GPU nothing is sent there.
  void clear(int slot, StateKind kind, size_t block);

  // Slots from geometry().slots on keep copies. Call before a slot's first byte is overwritten.
  void unseal(int slot);
  // Call after its last byte was written. False if there is no room for the notes: the slot stays
  // unsealed, since no process could resume from it.
  bool seal(int slot, const Seal& seal, std::string_view notes = {});
  // All of a slot's state, at an address of the device.
  std::span<std::byte> slot_bytes(int slot) {
    return {state_ + static_cast<size_t>(slot) * geometry_.slot_bytes(), geometry_.slot_bytes()};
  }

  // Of an arena in host memory: from the header on to the end of the own slots.
  std::span<std::byte> own_memory() {
    return {reinterpret_cast<std::byte*>(header_),
            geometry_.state_at() + static_cast<size_t>(geometry_.slots) * geometry_.slot_bytes()};
  }

  // The seal of a sealed slot.
  Seal seal_of(int slot) const;
  std::string_view notes(int slot) const;

  bool is_sealed(int slot) const {
    return slot_header(slot).step.load(std::memory_order_acquire) != kUnsealed;
  }

  // Whose memory the state is in: the host's where it is offloaded.
  Device& device() const { return device_; }
  const ArenaGeometry& geometry() const { return geometry_; }
  const ArenaHeader& header() const { return *header_; }

 private:
  StateArena(ArenaGeometry geometry, void* mapping);
  StateArena(ArenaGeometry geometry, Device& device, DeviceArray<std::byte> memory);
  static Result<void*> map(int fd, const ArenaGeometry& geometry);
  void write_header();
  bool is_bf16(StateKind kind) const { return element_bytes(kind) == 2; }
  // Where header and notes have what is in `slot`.
  size_t header_index(int slot) const {
    const int behind = slot - geometry_.slots;
    return static_cast<size_t>(behind < 0 ? slot : static_cast<int>(kOwnSlots) + behind);
  }
  ArenaSlotHeader& slot_header(int slot) const { return header_->slots[header_index(slot)]; }
  char* notes_at(int slot) const;
  void* part(int slot, StateKind kind, size_t block);

  ArenaGeometry geometry_;
  std::vector<int64_t> block_begin_;
  Device& device_;
  std::vector<std::byte> own_header_;     // with notes; empty = at the beginning of the mapping
  DeviceArray<std::byte> device_memory_;  // empty = the mapping
  ArenaHeader* header_;
  std::byte* state_;  // slot 0
};

}  // namespace hpctl
