// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/arena_geometry.h"

#include <algorithm>

#include "common/job/snapshot_peers.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {

namespace {

// The notes have a loss and a gradient norm for each step of the window. Half of the usual room is
// for the rest: labels, and samples that are left out.
size_t notes_room(const StabilitySpec& stability) {
  const size_t window = static_cast<size_t>(stability.window) * 2 * sizeof(double);
  const size_t beyond = window - std::min(window, kArenaNotesBytes / 2);
  return kArenaNotesBytes * (1 + (beyond + kArenaNotesBytes - 1) / kArenaNotesBytes);
}

}  // namespace

ArenaGeometry host_geometry(const Workload& workload, const std::vector<Block>& blocks,
                            const Mesh& mesh, bool gpu) {
  ArenaGeometry geometry = ArenaGeometry::of(blocks, workload.job, workload.rank, mesh);
  if (workload.train.optimizer.master == StateType::kBf16) geometry.param_bytes = 2;
  if (workload.train.optimizer.moments == StateType::kBf16) geometry.moment_bytes = 2;
  // The third is for a save to read from, and the fourth, where copies at peers have the third.
  geometry.slots = 3;
  geometry.notes_bytes = notes_room(workload.train.stability);
  if (keeps_copies(setting_of(workload, gpu))) {
    geometry.slots = static_cast<int32_t>(kOwnSlots);
    geometry.copies = static_cast<int32_t>(kCopySlots);
    geometry.copied_index =
        snapshot_source(workload.rank, workload.world_size, workload.workers_per_node);
  }
  return geometry;
}

ArenaGeometry in_one_slot(ArenaGeometry geometry) {
  geometry.slots = 1;
  geometry.copies = 0;
  geometry.copied_index = -1;
  return geometry;
}

}  // namespace hpctl
