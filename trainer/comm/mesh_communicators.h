// SPDX-License-Identifier: Apache-2.0
// The communicators of one rank: the world's, its shard group's (kShardDims), its replicas', and
// one along each other dimension of the mesh. Groups that are the whole world share its
// communicator; groups of one rank have no network. The ranks of a group call its collectives in
// the same order; of several groups, they may wait in any order where memory carries them
// (siblings.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/layout/mesh.h"
#include "trainer/comm/communicator.h"

namespace hpctl {

using CommunicatorFactory =
    std::function<Result<std::unique_ptr<Communicator>>(const CommunicatorOptions&)>;

class MeshCommunicators {
 public:
  // `options.world_size` = mesh.world_size(). By make_communicator().
  MeshCommunicators(const CommunicatorOptions& options, const Mesh& mesh);
  // The same with communicators of another kind, or the first error of their making.
  static Result<MeshCommunicators> create(const CommunicatorOptions& options, const Mesh& mesh,
                                          const CommunicatorFactory& make);

  // Meets the peers of all groups; call once, first.
  Outcome connect();

  Communicator& world() { return *world_; }
  Communicator& shard() { return of(groups_[kShard]); }
  Communicator& replicate() { return of(groups_[kReplicate]); }
  // A dimension of the mesh, except dp_shard, which has only shard().
  Communicator& along(std::string_view dim);

  // See Communicator::suffer.
  Outcome suffer(PeerTrouble trouble);

  // Any thread; see Communicator::abort.
  void abort();

 private:
  struct Group {
    std::string name;                    // of its dimension, or "shard", "replicate"
    std::unique_ptr<Communicator> comm;  // null = the world's
  };
  enum : size_t { kShard, kReplicate };

  MeshCommunicators() = default;
  Communicator& of(Group& group) { return group.comm ? *group.comm : *world_; }

  std::unique_ptr<Communicator> world_;
  std::vector<Group> groups_;  // shard, replicate, then other dimensions in the mesh's order
};

}  // namespace hpctl
