// SPDX-License-Identifier: Apache-2.0
// Reshards a state that is complete in the ranks' memory for another number of ranks
// (Workload::former_parts): each rank gets its new part from the ranks that have pieces of it.
//
//   block b   former  [---- part 0 ----|---- part 1 ----|---- part 2 ----]
//             new     [------- part 0 --------|------- part 1 --------]
//                      0 -> 0            1 -> 0 1 -> 1    2 -> 1
//
// The two meshes may be any (common/layout/reshard_plan.h). Every rank reports its parts to the
// others, its own and copies that it keeps for another; so every rank knows the whole plan. Then,
// distance by distance d, each rank sends to the rank that is d further and receives from the one d
// before it. Messages are bounded, with a checksum each. Existing parts do not change: until all
// ranks have all of theirs, a fault loses nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/layout/local_layout.h"
#include "common/layout/mesh.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/state_arena.h"

namespace hpctl {

// A rank's new part, in slot 0 of memory of the process, and what goes with it.
struct NewPart {
  StateArena arena;
  Seal seal;
  std::string notes;
};

// Collective over the world, whose ranks divide the state as `mesh` does. `former`: the former
// arena of this rank's place, null = none; it is only read. `former_mesh` divided the state before.
// `geometry`: of its new part. kDataLoss, on all ranks, if a part of the state of `step` is in no
// rank's memory, or arrived damaged.
Result<NewPart> reshard(Communicator& world, StateArena* former, const Mesh& former_mesh,
                        uint64_t step, const CutModel& model, const Mesh& mesh,
                        const ArenaGeometry& geometry);

}  // namespace hpctl
