// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a group on one node have mapped, through which each of them passes
// pieces of bytes to others.
//
//   per rank            a bell: a futex, and what its rank waits for
//   per rank            32 slots of 256 KiB, and for each slot the ranks that have yet to read it
//   per rank            a room of 4 GiB for its buffers; what is never used of it takes no memory
//   per pair of ranks   a queue of the pieces that one has published for the other
//
// A sender fills a free slot, writes the slot's readers, puts the piece into the queue of each and
// rings their bells. A reader takes the pieces of one sender in the order in which they were
// published; the last reader frees the slot. A slot is in the queue of each of its readers once, so
// a queue with as many entries as a sender has slots is never full. The lowest free slot is used
// first, so unneeded slots are never touched, and used ones stay in the cache.
//
// A piece in its sender's room is read in place: it has any size and carries its position, and its
// slot holds only its readers. The sender does not change it until they have read it.
//
// The memory is a file without a name (memfd), sealed: it ends with the last process that has it
// mapped, however that process ends, and no process can make it shorter. There is no lock in it, so
// a rank that is killed at any instruction blocks no other one.
//
// Threads: one per rank, except wake(), which is for any.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// A set of ranks of one group, as bits.
using RankSet = uint64_t;
constexpr RankSet only_rank(int rank) { return RankSet{1} << rank; }

class SharedSegment {
 public:
  static constexpr int kMostRanks = 63;
  static constexpr size_t kSlotBytes = size_t{256} << 10;
  static constexpr size_t kSlots = 32;
  static constexpr size_t kRoomBytes = size_t{4} << 30;
  // For wait(), beside ranks: a slot of this rank's becomes free.
  static constexpr RankSet kForSlot = only_rank(kMostRanks);

  using Clock = std::chrono::steady_clock;

  // A published piece of a sender: at most kSlotBytes from a slot, any number from its room.
  struct Piece {
    const std::byte* data;
    size_t bytes;
    uint64_t collective;
    bool in_room;
  };

  // A file for `ranks` ranks, 2 to kMostRanks; a page is taken when it is first written.
  static Result<UniqueFd> create(int ranks);
  // Maps what create() made; the descriptor is of no further use.
  static Result<std::shared_ptr<std::byte>> map(const UniqueFd& file, int ranks);
  // The result of map(), as `rank` uses it. Ranks that are threads may have one mapping, or one
  // each.
  SharedSegment(std::shared_ptr<std::byte> memory, int rank, int ranks);

  // A slot of this rank's, of kSlotBytes; null while all have readers to come.
  std::byte* free_slot();
  // The ranks that have yet to read something from this one.
  RankSet readers() const;
  // Passes what free_slot() gave, filled with `bytes`, to `readers`, who are not none.
  void publish(const std::byte* slot, size_t bytes, uint64_t collective, RankSet readers);

  // Zeroed memory in this rank's room, aligned to pages; null where too little is left. It stays
  // as long as this.
  std::byte* allocate(size_t bytes);
  bool is_in_room(const void* data) const;
  // Like publish(), of what lies in the room. False while no slot is free.
  bool publish_in_room(const void* data, size_t bytes, uint64_t collective, RankSet readers);
  // The ranks that have yet to read something that was published from there.
  RankSet readers_of(std::span<const std::byte> part_of_room) const;

  // The next piece of `from`, until pop(); nullopt while there is none.
  std::optional<Piece> front(int from) const;
  void pop(int from);

  // Changes with everything that a waiter may wait for.
  uint32_t bell() const;
  // Returns when the bell has changed since it was `heard`, at `deadline`, or for no reason. Only
  // pieces of `wanted`, or with kForSlot a free slot, wake it soon.
  void wait(uint32_t heard, RankSet wanted, Clock::time_point deadline);
  // Ends this rank's wait.
  void wake();

 private:
  struct Bell;
  struct Readers;
  struct Queue;
  // Where things lie, in bytes.
  struct Layout {
    explicit Layout(int ranks);
    size_t readers;
    size_t queues;
    size_t slots;
    size_t rooms;
    size_t end;
  };

  Bell& bell_of(int rank) const;
  Readers& readers_of(int rank) const;
  Queue& queue(int from, int to) const;
  std::byte* slot(int rank, size_t number) const;
  size_t number_of(const std::byte* slot) const;
  std::byte* room() const;
  void enqueue(size_t slot_number, const std::byte* data, size_t bytes, uint64_t collective,
               RankSet readers);
  void ring(int rank, RankSet for_whom);

  Layout layout_;
  std::shared_ptr<std::byte> memory_;
  int rank_;
  int ranks_;
  int spins_;             // looks at the bell before sleeping
  size_t room_used_ = 0;  // bytes
  // Where that lies which was last published by each slot.
  std::array<const std::byte*, kSlots> published_{};
  std::vector<uint64_t> taken_;  // pieces of each rank that this one has popped
};

}  // namespace hpctl
