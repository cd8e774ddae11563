// SPDX-License-Identifier: Apache-2.0
// Worlds of communicators whose ranks are threads of one process.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "tests/support/temporary_directory.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/rendezvous_communicator.h"
#include "trainer/comm/shared_segment.h"

namespace hpctl::test {

#ifdef __SANITIZE_THREAD__
// It knows memory by its address, and sees no order missing between two mappings of a file.
constexpr bool kOneMapping = true;
#else
// As processes have them: nothing in a segment may depend on where it is mapped.
constexpr bool kOneMapping = false;
#endif

// Maps a segment for a rank of this process.
inline Result<std::shared_ptr<std::byte>> map_segment(const UniqueFd& file, int ranks) {
  if (!kOneMapping) return SharedSegment::map(file, ranks);
  static std::mutex mutex;
  static std::map<ino_t, std::weak_ptr<std::byte>> mapped;
  struct stat status {};
  HP_CHECK(fstat(file.get(), &status) == 0);
  const std::lock_guard lock(mutex);
  std::weak_ptr<std::byte>& known = mapped[status.st_ino];
  if (std::shared_ptr<std::byte> memory = known.lock()) return memory;
  HP_TRY_ASSIGN(std::shared_ptr<std::byte> memory, SharedSegment::map(file, ranks));
  known = memory;
  return memory;
}

inline std::vector<SharedSegment> segments_of(int ranks) {
  const UniqueFd file = SharedSegment::create(ranks).value();
  std::vector<SharedSegment> segments;
  for (int r = 0; r < ranks; ++r) {
    segments.emplace_back(map_segment(file, ranks).value(), r, ranks);
  }
  return segments;
}

inline CommunicatorOptions options_for(const TemporaryDirectory& dir, int rank, int world_size) {
  CommunicatorOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.rendezvous_dir = dir / "rdzv";
  options.map_segment = map_segment;
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
