// SPDX-License-Identifier: Apache-2.0
// Copies of a GPU's state in host memory that outlives the process (worker_abi.h, kArenaFd). The
// state itself is in the GPU's memory, in one slot, which each step overwrites in place. The copies
// are in the slots of a second arena, in host memory, of the same division and types:
//
//   GPU     [step S, one slot]
//            | one copy at a time, beside the forward pass of step S + 1
//   host    [step S, under way]  [step S - 1, sealed]  [a save's]  ...
//
// A slot is unsealed before the first byte of a copy is sent to it, and sealed after the last one
// has arrived. The copy before stays sealed meanwhile, so whenever the process dies, one slot is
// sealed and complete. Each rank seals its copy before the small all-reduce of the next step; so
// that all-reduce proves that all ranks have sealed it, and an older slot may be overwritten
// (decision 1407).
//
// A copy is sent in pieces: a GPU has few engines for copies, and the few bytes that the host waits
// for within a step wait for one piece, not for all of the state.
//
// Threads: the step loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/device/device.h"
#include "trainer/state/state_arena.h"

namespace hpctl {

class HostCopies {
 public:
  static constexpr size_t kPieceBytes = size_t{64} << 20;

  struct Counts {
    uint64_t begun = 0;
    uint64_t calls = 0;  // of Device::begin_download()
    uint64_t bytes = 0;
    double waited_s = 0;  // in finish()
  };

  // `arena` is in host memory; the device outlives this. Bytes of a piece: at most.
  HostCopies(Device& device, StateArena arena, size_t piece_bytes = kPieceBytes);
  // Waits for the copy under way, which stays unsealed.
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  StateArena& arena() { return arena_; }
  const StateArena& arena() const { return arena_; }

  // Begins to copy the state that is in slot 0 of `from`, an arena of the device, to `slot`. The
  // device's next change of it comes after the copy if Device::after_downloads() precedes it.
  // Precondition: none is under way.
  void begin(StateArena& from, int slot, const Seal& seal, std::string notes);
  bool is_under_way() const { return under_way_.has_value(); }
  // Waits until the copy under way has arrived, and seals its slot; false if there is no room for
  // the notes. Throws what the device throws; the slot is unsealed then. Precondition: one is under
  // way.
  bool finish();
  // Waits likewise, and leaves the slot unsealed.
  void give_up();

  // Copies the state in `slot` to slot 0 of `to`; done on return.
  void restore(int slot, StateArena& to);

  const Counts& counts() const { return counts_; }

 private:
  struct UnderWay {
    int slot = kNoSlot;
    Seal seal;
    std::string notes;
  };

  Device& device_;
  StateArena arena_;
  const size_t piece_bytes_;
  std::optional<UnderWay> under_way_;
  Counts counts_;
};

}  // namespace hpctl
