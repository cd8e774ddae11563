// SPDX-License-Identifier: Apache-2.0
// The communicators of one rank: the world's, its shard group's and its replicas'. Groups that are
// the whole world share its communicator; groups of one rank have no network. All ranks call the
// collectives of all three in the same order, as for one (communicator.h).
#pragma once

#include <functional>
#include <memory>

#include "trainer/comm/communicator.h"
#include "trainer/parallel/mesh.h"

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
  Communicator& shard() { return shard_ ? *shard_ : *world_; }
  Communicator& replicate() { return replicate_ ? *replicate_ : *world_; }

  // See Communicator::suffer.
  Outcome suffer(PeerTrouble trouble);

  // Any thread; see Communicator::abort.
  void abort();

 private:
  MeshCommunicators() = default;

  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> shard_;      // null = the world's
  std::unique_ptr<Communicator> replicate_;  // null = the world's
};

}  // namespace hpctl
