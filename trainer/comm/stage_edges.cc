// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/stage_edges.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "trainer/comm/group_slots.h"

namespace hpctl {

Result<StageEdges> StageEdges::create(const CommunicatorOptions& options, const Mesh& mesh,
                                      std::span<const StageEdge> edges,
                                      const CommunicatorFactory& make) {
  const std::vector<int32_t> pipeline = mesh.group(options.rank, MeshDim::kPp);
  const auto siblings = options.siblings ? options.siblings : std::make_shared<Siblings>();
  StageEdges made(mesh.coordinate(options.rank, MeshDim::kPp));
  for (const StageEdge& edge : edges) {
    HP_CHECK(edge.from != edge.to);
    if (edge.from != made.place_ && edge.to != made.place_) continue;
    CommunicatorOptions of_edge = options;
    of_edge.rank = edge.from == made.place_ ? 0 : 1;
    of_edge.world_size = 2;
    of_edge.siblings = siblings;
    of_edge.counts = nullptr;
    const int32_t from = pipeline.at(static_cast<size_t>(edge.from));
    const int32_t to = pipeline.at(static_cast<size_t>(edge.to));
    of_edge.rendezvous_dir += "/edge-" + std::to_string(from) + "-" + std::to_string(to);
    HP_TRY_ASSIGN(auto comm, make(with_slot(of_edge, GroupKind::kEdge, from, to)));
    made.ends_.push_back({edge, std::move(comm)});
  }
  return made;
}

// In the order of all edges, so the first edge that is not connected always has both of its ends.
Outcome StageEdges::connect() {
  for (const End& end : ends_) HP_TRY(end.comm->connect());
  return Ok{};
}

Communicator& StageEdges::between(const StageEdge& edge) {
  const auto found =
      std::find_if(ends_.begin(), ends_.end(), [&](const End& end) { return end.edge == edge; });
  HP_CHECK(found != ends_.end());
  return *found->comm;
}

Result<CollectivePtr> StageEdges::begin_send(int32_t to, std::span<const std::byte> bytes) {
  return between({place_, to}).begin_exchange(1, bytes, 1, {});
}

Result<CollectivePtr> StageEdges::begin_receive(int32_t from, std::span<std::byte> bytes) {
  return between({from, place_}).begin_exchange(0, {}, 0, bytes);
}

void* StageEdges::allocate(int32_t to, size_t bytes) {
  return between({place_, to}).allocate_shared(bytes);
}

Outcome StageEdges::await_reader(int32_t to, std::span<const std::byte> sent) {
  return between({place_, to}).await_readers(sent);
}

Outcome StageEdges::suffer(PeerTrouble trouble) {
  for (const End& end : ends_) HP_TRY(end.comm->suffer(trouble));
  return Ok{};
}

void StageEdges::abort() {
  for (const End& end : ends_) end.comm->abort();
}

}  // namespace hpctl
