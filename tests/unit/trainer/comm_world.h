// SPDX-License-Identifier: Apache-2.0
// Worlds of communicators whose ranks are threads of one process.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

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

enum class Carrier { kSharedMemory, kGloo };

inline std::string name_of(Carrier carrier) {
  return carrier == Carrier::kGloo ? "Gloo" : "SharedMemory";
}

// As make_communicator() makes it, on one node or, without a name for it, on none like another.
inline std::unique_ptr<Communicator> carried_by(Carrier carrier,
                                                const CommunicatorOptions& options) {
  if (options.world_size == 1) return make_communicator(options);
  return std::make_unique<RendezvousCommunicator>(
      options, carrier == Carrier::kGloo ? "" : NodePeers::this_node().value());
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
