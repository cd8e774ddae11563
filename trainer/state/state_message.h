// SPDX-License-Identifier: Apache-2.0
// A sealed state on its way from one rank's arena to another's: seal and notes, the state in
// pieces, and their checksums (CRC-32C).
#pragma once

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/state_arena.h"

namespace hpctl {

// One end of it, or both at once: slot `from` goes to rank `to_rank` of `ring`, and slot `into` is
// filled from rank `from_rank`, and sealed if it arrived intact. kNoSlot if there is nothing to
// send or to receive: every rank of `ring` makes the same calls. Both ends have arenas of one
// geometry. False if the received data are damaged.
Result<bool> exchange_states(Communicator& ring, StateArena& arena, int to_rank, int from,
                             int from_rank, int into);

}  // namespace hpctl
