// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mesh_communicators.h"

#include <string>

namespace hpctl {

namespace {

// The communicator of this rank's group along `dim`, or null when that is the world. Every group
// meets in a directory of its own, named after its first rank.
Result<std::unique_ptr<Communicator>> group_communicator(CommunicatorOptions options,
                                                         const Mesh& mesh, MeshDim dim,
                                                         const std::string& name,
                                                         const CommunicatorFactory& make) {
  if (mesh.degree(dim) == mesh.world_size()) return std::unique_ptr<Communicator>();
  const int32_t first = mesh.group(options.rank, dim).front();
  options.rank = mesh.coordinate(options.rank, dim);
  options.world_size = mesh.degree(dim);
  options.group = dim == MeshDim::kDpShard ? 1 : 2;
  options.rendezvous_dir += "/" + name + "-" + std::to_string(first);
  return make(options);
}

}  // namespace

Result<MeshCommunicators> MeshCommunicators::create(const CommunicatorOptions& options,
                                                    const Mesh& mesh,
                                                    const CommunicatorFactory& make) {
  HP_CHECK(options.world_size == mesh.world_size());
  MeshCommunicators made;
  HP_TRY_ASSIGN(made.world_, make(options));
  HP_TRY_ASSIGN(made.shard_, group_communicator(options, mesh, MeshDim::kDpShard, "shard", make));
  HP_TRY_ASSIGN(made.replicate_,
                group_communicator(options, mesh, MeshDim::kDpReplicate, "replicate", make));
  return made;
}

MeshCommunicators::MeshCommunicators(const CommunicatorOptions& options, const Mesh& mesh)
    : MeshCommunicators(create(options, mesh, [](const CommunicatorOptions& group) {
                          return Result<std::unique_ptr<Communicator>>(make_communicator(group));
                        }).value()) {}

Outcome MeshCommunicators::connect() {
  HP_TRY(world_->connect());
  if (shard_) HP_TRY(shard_->connect());
  if (replicate_) HP_TRY(replicate_->connect());
  return Ok{};
}

Outcome MeshCommunicators::suffer(PeerTrouble trouble) {
  HP_TRY(world_->suffer(trouble));
  if (shard_ && shard_->world_size() > 1) HP_TRY(shard_->suffer(trouble));
  if (replicate_ && replicate_->world_size() > 1) HP_TRY(replicate_->suffer(trouble));
  return Ok{};
}

void MeshCommunicators::abort() {
  world_->abort();
  if (shard_) shard_->abort();
  if (replicate_) replicate_->abort();
}

}  // namespace hpctl
