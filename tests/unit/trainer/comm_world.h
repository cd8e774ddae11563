// SPDX-License-Identifier: Apache-2.0
// Worlds of communicators whose ranks are threads of one process.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/rendezvous_communicator.h"

namespace hpctl::test {

inline CommunicatorOptions options_for(const TemporaryDirectory& dir, int rank, int world_size) {
  CommunicatorOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.rendezvous_dir = dir / "rdzv";
  return options;
}

inline std::string name_of(Carrier carrier) {
  switch (carrier) {
    case Carrier::kSharedMemory:
      return "SharedMemory";
    case Carrier::kHierarchical:
      return "Hierarchical";
    case Carrier::kGloo:
      break;
  }
  return "Gloo";
}

// A name by which a rank finds this carrier: one node, one for every two ranks, or none.
inline std::string node_of(Carrier carrier, int rank) {
  if (carrier == Carrier::kGloo) return "";
  std::string node = NodePeers::this_node().value();
  if (carrier == Carrier::kHierarchical) node += ".pair" + std::to_string(rank / 2);
  return node;
}

// As make_communicator() makes it, where `node_of` says that the ranks are. Hierarchical is an even
// number of ranks, 4 or more.
inline std::unique_ptr<Communicator> carried_by(Carrier carrier,
                                                const CommunicatorOptions& options) {
  if (options.world_size == 1) return make_communicator(options);
  return std::make_unique<RendezvousCommunicator>(options, node_of(carrier, options.rank));
}

// The sum of the block of `size` ranks from `first` on, in the order of trainer/comm/ordered_sum.h.
inline float sum_of_block(const std::function<float(int)>& of_rank, int first, int size,
                          int ranks) {
  if (size == 1) return of_rank(first);
  const float left = sum_of_block(of_rank, first, size / 2, ranks);
  if (first + size / 2 >= ranks) return left;
  return left + sum_of_block(of_rank, first + size / 2, size / 2, ranks);
}
inline float sum_of_ranks(const std::function<float(int)>& of_rank, int ranks) {
  return sum_of_block(of_rank, 0, static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks))),
                      ranks);
}

// Runs `rank` for every rank of a world, each in a thread of its own.
inline void on_every_rank(int world_size,
                          const std::function<void(const CommunicatorOptions&)>& rank) {
  signal(SIGPIPE, SIG_IGN);
  const TemporaryDirectory dir;
  std::vector<std::thread> ranks;
  for (int r = 0; r < world_size; ++r) {
    ranks.emplace_back([&, r] { rank(options_for(dir, r, world_size)); });
  }
  for (std::thread& t : ranks) t.join();
}

// One rank's part: connects, runs `body`, and waits for the others, since a rank that left early
// would look like a lost peer to one still inside `body`.
inline void take_part(Communicator& comm, const std::function<void(Communicator&)>& body) {
  const Outcome connected = comm.connect();
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  body(comm);
  ASSERT_TRUE(comm.barrier().ok());
}

}  // namespace hpctl::test
