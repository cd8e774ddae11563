// SPDX-License-Identifier: Apache-2.0
// Which ranks keep copies of each other's states (recovery.snapshot): the state in a node's memory
// survives the node if another node has a copy.
//
// Nodes form pairs, and three of them a ring if their number is odd; the ranks of a group have the
// same place on their nodes. The next member keeps a member's copy. A node's partner is half of the
// nodes away: schedulers number nodes along the network's tree, so the two are under different
// switches if there is more than one.
#pragma once

#include <cstdint>
#include <vector>

namespace hpctl {

// Of `rank`, in the ring's order, the same for all members. Ranks are bound to nodes in blocks of
// workers_per_node; with one node the group has one member.
std::vector<int32_t> snapshot_group(int32_t rank, int32_t world_size, int32_t workers_per_node);

// The rank that keeps the copy of `rank`'s state; itself where there is one node.
int32_t snapshot_holder(int32_t rank, int32_t world_size, int32_t workers_per_node);
// The rank whose state `rank` keeps the copy of; itself where there is one node.
int32_t snapshot_source(int32_t rank, int32_t world_size, int32_t workers_per_node);

}  // namespace hpctl
