// SPDX-License-Identifier: Apache-2.0
// How large a job's state arenas are, and how many slots they have.
#pragma once

#include <vector>

#include "common/layout/block_layout.h"
#include "common/layout/mesh.h"
#include "common/worker/workload.h"
#include "trainer/state/state_arena.h"

namespace hpctl {

// Of the arena in host memory: of a CPU's state, or of the copies of a GPU's. `gpu`: which.
ArenaGeometry host_geometry(const Workload& workload, const std::vector<Block>& blocks,
                            const Mesh& mesh, bool gpu);
// The same state in the one slot of a device, or of an offloaded state.
ArenaGeometry in_one_slot(ArenaGeometry geometry);

}  // namespace hpctl
