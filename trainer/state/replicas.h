// SPDX-License-Identifier: Apache-2.0
// Sends a part of the state from the ranks that have it to their replicas that lack it.
//
// Replicas (MeshDim::kDpReplicate) hold the same part, bit for bit. Each holder sends a piece, so a
// whole part costs the time of one part, however many replicas there are:
//
//   round k   bytes of the part    [--- piece of holder 0 ---|--- piece of holder 1 ---| ...
//
// All ranks of the job make the same number of collectives, even if no rank lacks a part: in a
// hang, the collectives that a rank has begun are compared with the others'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/layout/mesh.h"
#include "trainer/comm/communicator.h"

namespace hpctl {

struct ReplicaGroup {
  std::vector<bool> has;  // by rank of the replica group
  int32_t holders = 0;    // how many have it
  int32_t fewest = 0;     // holders in the group of the job that has the fewest
};

// The group of `rank`. `refilled`: ranks of the job that have nothing, ascending.
ReplicaGroup replica_group(const Mesh& mesh, int32_t rank, const std::vector<int32_t>& refilled);

// Collective over `replicas`, whose ranks form `group`. `part`: the same size everywhere; read if
// the rank has it, else written. Precondition: group.fewest > 0.
Outcome spread(Communicator& replicas, const ReplicaGroup& group, std::span<std::byte> part);

}  // namespace hpctl
