// SPDX-License-Identifier: Apache-2.0
// Worlds of communicators whose ranks are threads of one process.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
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

// Large buffers are a period of numbers over and over, made and compared by copies of memory:
// number by number they would take most of a test's time under a sanitizer. A period is a prime, so
// that every place in whatever is moved at once has its turn.

// Fills `to` with `period` over and over, from place `first` of it on.
template <typename T>
void repeat(const std::vector<T>& period, size_t first, std::span<T> to) {
  const size_t once = std::min(period.size(), to.size());
  for (size_t i = 0; i < once; ++i) to[i] = period[(first + i) % period.size()];
  for (size_t done = once; done < to.size(); done *= 2) {
    std::memcpy(&to[done], to.data(), std::min(done, to.size() - done) * sizeof(T));
  }
}

// Where `found` is not, to the bit, what repeat() makes; its size where it is that everywhere.
template <typename T>
size_t first_wrong(std::span<const T> found, const std::vector<T>& period, size_t first) {
  const auto differ = [](const T* a, const T* b, size_t count) {
    return count > 0 && std::memcmp(a, b, count * sizeof(T)) != 0;
  };
  const size_t once = std::min(period.size(), found.size());
  for (size_t i = 0; i < once; ++i) {
    if (differ(&found[i], &period[(first + i) % period.size()], 1)) return i;
  }
  if (!differ(found.data(), found.data() + once, found.size() - once)) return found.size();
  size_t wrong = once;
  while (!differ(&found[wrong], &found[wrong - once], 1)) ++wrong;
  return wrong;
}

// Numbers of which the order of addition shows in the sum.
constexpr size_t kPeriod = 97;
inline std::vector<float> numbers_of(int rank) {
  std::vector<float> numbers(kPeriod);
  for (size_t i = 0; i < kPeriod; ++i) {
    numbers[i] = (rank % 2 == 0 ? 1.0F : -1.0F) * (1e7F + static_cast<float>(i)) /
                 (static_cast<float>(rank) + 0.3F);
  }
  return numbers;
}

// The sums of the ranks' periods, whose sizes are the same.
inline std::vector<float> sums_of(const std::vector<std::vector<float>>& periods) {
  std::vector<float> sums(periods.front().size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto of_rank = [&](int rank) { return periods[static_cast<size_t>(rank)][i]; };
    sums[i] = sum_of_ranks(of_rank, static_cast<int>(periods.size()));
  }
  return sums;
}
inline std::vector<float> sums_of_numbers(int ranks) {
  std::vector<std::vector<float>> periods;
  for (int rank = 0; rank < ranks; ++rank) periods.push_back(numbers_of(rank));
  return sums_of(periods);
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
