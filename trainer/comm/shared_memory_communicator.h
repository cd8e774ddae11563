// SPDX-License-Identifier: Apache-2.0
// Collectives between ranks of one node, through memory that they share.
//
// A rank copies its contribution into its own slots once (trainer/comm/shared_segment.h), when the
// collective begins, as far as there is room; the rest, and everything that it receives, is moved
// in later calls. No extra thread moves bytes: a waiting rank copies arrived pieces straight to
// their destination, and a reduction adds the pieces in place. So a collective costs no processor
// time while its ranks compute, and a piece is ready before the others need it. Collectives that
// are larger than the slots pass through them piece by piece. Memory of allocate_shared() is not
// copied into slots: it is published as one piece of any size, and waiting ranks copy or add from
// there.
//
// All ranks work on collectives in the order in which they were begun. The first piece in that
// order always finds a free slot, since all before it have been read, so no ranks wait in a circle.
// Where a rank has several communicators, one that waits moves the bytes of all (siblings.h).
//
// A peer is lost when its socket closes (trainer/comm/node_peers.h). Its published pieces are still
// read. A collective fails if a piece from it is missing, or if a slot cannot become free without
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/shared_segment.h"

namespace hpctl {

class SharedMemoryCommunicator final : public Communicator, private Siblings::Member {
 public:
  // `addresses` belong to the NodePeers of all ranks, by rank. If the ranks are some of a larger
  // group, errors use its names: `first_rank` and the following ones.
  SharedMemoryCommunicator(const CommunicatorOptions& options, std::unique_ptr<NodePeers> peers,
                           std::vector<std::string> addresses, int first_rank = 0);
  ~SharedMemoryCommunicator() override;

  Outcome connect() override;
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) override;
  Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                   void* output) override;
  Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing, int from,
                                       std::span<std::byte> incoming) override;
  void* allocate_shared(size_t bytes) override { return segment_->allocate(bytes); }
  Outcome await_readers(std::span<const std::byte> shared) override;
  Outcome suffer(PeerTrouble trouble) override;
  void abort() override;

  // begin_all_gather() where rank r's chunk is at r * stride.
  CollectivePtr begin_strided_gather(std::byte* buffer, size_t stride, size_t chunk_bytes);
  // Like begin_sums(), for chunks that are `stride` numbers apart, but the sum of each of `blocks`
  // separately: this many consecutive ranks each, and all ranks together; adjacent in `output`, and
  // of sum_type(type).
  CollectivePtr begin_block_sums(NumberType type, const void* input, size_t stride, size_t chunk,
                                 std::vector<int> blocks, void* output);
  // For the others it is as if this rank's process had ended. Any thread, after connect().
  void leave() { peers_->cut(); }

 private:
  using Clock = std::chrono::steady_clock;
  class Work;
  class AllGather;
  class ReduceScatter;
  class Exchange;
  struct Needs;
  struct Sums;

  template <typename Kind, typename... Arguments>
  CollectivePtr begin(Arguments&&... arguments);
  bool advance() override;
  void progress();
  Needs needs_until(const Work* last) const;
  template <typename IsDone, typename FindNeeds>
  Outcome work_until(const std::string& what, IsDone is_done, FindNeeds find_needs);
  Outcome wait(const Work& work);
  Error failed(const std::string& what, const std::string& why) const;
  std::string names_of(RankSet ranks) const;
  Clock::time_point due_of_next() const;

  CommunicatorOptions options_;
  std::vector<std::string> addresses_;
  int first_rank_;
  RankSet others_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;  // guards the making of segment_, for abort()
  std::optional<SharedSegment> segment_;
  std::unique_ptr<NodePeers> peers_;  // ends before the memory that its thread rings in
  std::deque<Work*> begun_;           // not done, in order
  uint64_t number_ = 0;               // of the newest; alike on all ranks
  std::string broken_;                // why nothing can be done any more
  bool is_silent_ = false;
  Clock::time_point delays_until_{};
};

}  // namespace hpctl
