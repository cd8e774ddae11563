// SPDX-License-Identifier: Apache-2.0
// A part of the state goes from the ranks that have it to their replicas that have not.
//
// Replicas (MeshDim::kDpReplicate) hold the same part, bit for bit. Those that have it send a piece
// each, so that a whole part costs the time of one part, however many replicas there are:
//
//   round k   bytes of the part    [--- piece of holder 0 ---|--- piece of holder 1 ---| ...
//
// All ranks of the job make the same number of collectives, also where nobody lacks anything: what
// a rank has begun is compared with the others' when something hangs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/parallel/mesh.h"

namespace hpctl {

struct ReplicaGroup {
  std::vector<bool> has;  // by rank of the replica group
  int32_t holders = 0;    // how many have it
  int32_t fewest = 0;     // holders in the group of the job that has the fewest
};

// The group of `rank`. `refilled`: ranks of the job that have nothing, ascending.
ReplicaGroup replica_group(const Mesh& mesh, int32_t rank, const std::vector<int32_t>& refilled);

// Collective over `replicas`, whose ranks are those of `group`. `part`: the same size everywhere;
// read where the rank has it, else written. Precondition: group.fewest > 0.
Outcome spread(Communicator& replicas, const ReplicaGroup& group, std::span<std::byte> part);

}  // namespace hpctl
