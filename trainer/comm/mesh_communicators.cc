// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mesh_communicators.h"

#include <string>

namespace hpctl {

namespace {

// The communicator of this rank's group along `dim`, or null when that is the world. Every group
// meets in a directory of its own, named after its first rank.
std::unique_ptr<Communicator> group_communicator(CommunicatorOptions options, const Mesh& mesh,
                                                 MeshDim dim, const std::string& name) {
  if (mesh.degree(dim) == mesh.world_size()) return nullptr;
  const int32_t first = mesh.group(options.rank, dim).front();
  options.rank = mesh.coordinate(options.rank, dim);
  options.world_size = mesh.degree(dim);
  options.rendezvous_dir += "/" + name + "-" + std::to_string(first);
  return make_communicator(options);
}

}  // namespace

MeshCommunicators::MeshCommunicators(const CommunicatorOptions& options, const Mesh& mesh)
    : world_(make_communicator(options)),
      shard_(group_communicator(options, mesh, MeshDim::kDpShard, "shard")),
      replicate_(group_communicator(options, mesh, MeshDim::kDpReplicate, "replicate")) {
  HP_CHECK(options.world_size == mesh.world_size());
}

Outcome MeshCommunicators::connect() {
  HP_TRY(world_->connect());
  if (shard_) HP_TRY(shard_->connect());
  if (replicate_) HP_TRY(replicate_->connect());
  return Ok{};
}

void MeshCommunicators::abort() {
  world_->abort();
  if (shard_) shard_->abort();
  if (replicate_) replicate_->abort();
}

}  // namespace hpctl
