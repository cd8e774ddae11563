// SPDX-License-Identifier: Apache-2.0
// The edges of a pipeline at one rank. An edge goes from one rank of the pipeline to another, and
// is a communicator of these two: activations and gradients that one stage sends to another arrive
// in the order in which they were sent, whatever the ranks do in other groups. A lowered schedule
// has the same order at both ends (trainer/schedule/lower.h). Two ranks that send to each other
// have two edges, since neither knows which of them is first.
//
// On one node a sender does not wait for the receiver: what lies in memory of allocate() is
// published where it lies, and the receiver copies it from there. Memory as of begin_exchange().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/layout/mesh.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/mesh_communicators.h"

namespace hpctl {

// Between two coordinates in pp.
struct StageEdge {
  int32_t from = 0;
  int32_t to = 0;
  bool operator==(const StageEdge&) const = default;
};

class StageEdges {
 public:
  // Of the pipeline of rank `options.rank` of the mesh. All of its ranks give the same `edges` in
  // the same order.
  static Result<StageEdges> create(const CommunicatorOptions& options, const Mesh& mesh,
                                   std::span<const StageEdge> edges,
                                   const CommunicatorFactory& make);

  // Meets the other ends; call once, first.
  Outcome connect();

  // The next message of the edge between this rank and that coordinate in pp.
  Result<CollectivePtr> begin_send(int32_t to, std::span<const std::byte> bytes);
  Result<CollectivePtr> begin_receive(int32_t from, std::span<std::byte> bytes);
  // As Communicator's, for what is sent to that coordinate.
  void* allocate(int32_t to, size_t bytes);
  Outcome await_reader(int32_t to, std::span<const std::byte> sent);

  // See Communicator::suffer.
  Outcome suffer(PeerTrouble trouble);
  // Any thread; see Communicator::abort.
  void abort();

 private:
  struct End {
    StageEdge edge;
    std::unique_ptr<Communicator> comm;  // the sender is rank 0
  };

  explicit StageEdges(int32_t place) : place_(place) {}
  Communicator& between(const StageEdge& edge);

  int32_t place_;  // this rank's coordinate in pp
  std::vector<End> ends_;
};

}  // namespace hpctl
