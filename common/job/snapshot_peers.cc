// SPDX-License-Identifier: Apache-2.0
#include "common/job/snapshot_peers.h"

#include <algorithm>
#include <cstddef>

namespace hpctl {

namespace {

std::vector<int32_t> group_of_nodes(int32_t node, int32_t nodes) {
  if (nodes < 2) return {node};
  const int32_t in_pairs = nodes % 2 == 0 ? nodes : nodes - 3;
  if (node >= in_pairs) return {nodes - 3, nodes - 2, nodes - 1};
  const int32_t first = node % (in_pairs / 2);
  return {first, first + in_pairs / 2};
}

}  // namespace

std::vector<int32_t> snapshot_group(int32_t rank, int32_t world_size, int32_t workers_per_node) {
  std::vector<int32_t> ranks =
      group_of_nodes(rank / workers_per_node, world_size / workers_per_node);
  for (int32_t& member : ranks) member = member * workers_per_node + rank % workers_per_node;
  return ranks;
}

// So many places behind `rank` in its ring.
static int32_t member_behind(int32_t rank, int32_t places, int32_t world_size,
                             int32_t workers_per_node) {
  const std::vector<int32_t> group = snapshot_group(rank, world_size, workers_per_node);
  const auto own = std::find(group.begin(), group.end(), rank) - group.begin();
  const auto members = static_cast<std::ptrdiff_t>(group.size());
  return group[static_cast<size_t>((own + places + members) % members)];
}

int32_t snapshot_holder(int32_t rank, int32_t world_size, int32_t workers_per_node) {
  return member_behind(rank, 1, world_size, workers_per_node);
}

int32_t snapshot_source(int32_t rank, int32_t world_size, int32_t workers_per_node) {
  return member_behind(rank, -1, world_size, workers_per_node);
}

}  // namespace hpctl
