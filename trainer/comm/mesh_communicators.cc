// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mesh_communicators.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "trainer/comm/group_slots.h"

namespace hpctl {

namespace {

struct GroupPlan {
  std::string name;
  std::vector<std::string_view> dims;
  GroupKind kind = GroupKind::kNone;
};

GroupKind kind_of(std::string_view dim) {
  if (dim == MeshDim::kPp) return GroupKind::kPipeline;
  if (dim == MeshDim::kCp) return GroupKind::kContext;
  if (dim == MeshDim::kTp) return GroupKind::kTensor;
  return GroupKind::kNone;
}

// In the order of MeshCommunicators::groups_.
std::vector<GroupPlan> plan_groups(const Mesh& mesh) {
  std::vector<GroupPlan> groups = {
      {"shard", {kShardDims.begin(), kShardDims.end()}, GroupKind::kShard},
      {"replicate", {MeshDim::kDpReplicate}, GroupKind::kReplicate}};
  for (const MeshDimension& d : mesh.dimensions()) {
    if (d.name == MeshDim::kDpShard || d.name == MeshDim::kDpReplicate) continue;
    groups.push_back({d.name, {d.name}, kind_of(d.name)});
  }
  return groups;
}

// The communicator of this rank's group, or null if that is the world. Every group meets in a
// separate directory, named after its first rank.
Result<std::unique_ptr<Communicator>> group_communicator(CommunicatorOptions options,
                                                         const Mesh& mesh, const GroupPlan& plan,
                                                         size_t number,
                                                         const CommunicatorFactory& make) {
  const int32_t degree = mesh.degree(plan.dims);
  if (degree == mesh.world_size()) return std::unique_ptr<Communicator>();
  const std::vector<int32_t> members = mesh.group(options.rank, plan.dims);
  const int32_t first = members.front();
  options.rank = mesh.coordinate(options.rank, plan.dims);
  options.world_size = degree;
  // The page of a worker has room for those that the engine uses.
  options.group = number;
  if (number >= std::tuple_size_v<CollectiveCounts>) options.counts = nullptr;
  options.rendezvous_dir += "/" + plan.name + "-" + std::to_string(first);
  if (degree == 1 || plan.kind == GroupKind::kNone) options.groups = nullptr;
  return make(with_slot(options, plan.kind, first, members.back()));
}

}  // namespace

Result<MeshCommunicators> MeshCommunicators::create(const CommunicatorOptions& options,
                                                    const Mesh& mesh,
                                                    const CommunicatorFactory& make) {
  HP_CHECK(options.world_size == mesh.world_size());
  CommunicatorOptions of_rank = options;
  if (!of_rank.siblings) of_rank.siblings = std::make_shared<Siblings>();
  MeshCommunicators made;
  HP_TRY_ASSIGN(made.world_, make(with_slot(of_rank, GroupKind::kWorld, 0, mesh.world_size() - 1)));
  for (const GroupPlan& plan : plan_groups(mesh)) {
    const size_t number = made.groups_.size() + 1;
    HP_TRY_ASSIGN(auto comm, group_communicator(of_rank, mesh, plan, number, make));
    made.groups_.push_back({plan.name, std::move(comm)});
  }
  return made;
}

MeshCommunicators::MeshCommunicators(const CommunicatorOptions& options, const Mesh& mesh)
    : MeshCommunicators(create(options, mesh, [](const CommunicatorOptions& group) {
                          return Result<std::unique_ptr<Communicator>>(make_communicator(group));
                        }).value()) {}

Communicator& MeshCommunicators::along(std::string_view dim) {
  if (dim == MeshDim::kDpReplicate) return replicate();
  const auto found = std::find_if(groups_.begin() + kReplicate + 1, groups_.end(),
                                  [&](const Group& group) { return group.name == dim; });
  HP_CHECK(found != groups_.end());
  return of(*found);
}

Outcome MeshCommunicators::connect() {
  HP_TRY(world_->connect());
  for (Group& group : groups_) {
    if (group.comm) HP_TRY(group.comm->connect());
  }
  return Ok{};
}

Outcome MeshCommunicators::suffer(PeerTrouble trouble) {
  HP_TRY(world_->suffer(trouble));
  for (Group& group : groups_) {
    if (group.comm && group.comm->world_size() > 1) HP_TRY(group.comm->suffer(trouble));
  }
  return Ok{};
}

void MeshCommunicators::abort() {
  world_->abort();
  for (Group& group : groups_) {
    if (group.comm) group.comm->abort();
  }
}

}  // namespace hpctl
