// SPDX-License-Identifier: Apache-2.0
// Collectives between the ranks of several nodes with equally many consecutive ranks each: through
// shared memory on a node, over Gloo between nodes. So a node sends data over its network once, and
// not once for each of its ranks.
//
// A rank's counterparts are the ranks at its place on the other nodes. It sends only to them, so
// all ranks of a node share in the work.
//
//   all-gather      a rank sends its chunk to its counterparts, and passes theirs to its node:
//                   2 nodes of 2 ranks, chunk of 0:   0 ──network──► 2 ──memory──► 3
//                                                     └──memory──► 1
//   reduce-scatter  the ranks of a node add what they have for a node: each the chunk of its place,
//                   and sends the sum to the counterpart whose chunk that is, which adds the nodes'
//                   sums: 2 nodes of 2 ranks, chunk of 0:   2 + 3 ──network──► (0 + 1) + (2 + 3)
//   exchange        over Gloo
//
// A node adds whole blocks of the order of trainer/comm/ordered_sum.h, so no bit depends on the
// nodes: with 2^k ranks a node it sends one sum for each chunk, otherwise a few. Large chunks go in
// segments, each in flight while the next one is added or passed.
//
// One step needs the data of the other, while the training thread computes. So a thread of ours
// continues collectives, in the order in which they were begun; the waiting thread adds data that
// come from other nodes for a reduction.
//
// A peer is lost to its node and to its counterparts at once (shared_memory_communicator.h, Gloo).
// A rank that has lost one leaves: its connections close, so all ranks know within two more steps.
// Errors name the rank whose connection closed, which may be one that had left.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/gloo_communicator.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/scratch_pool.h"
#include "trainer/comm/shared_memory_communicator.h"

namespace hpctl {

class HierarchicalCommunicator final : public Communicator {
 public:
  // `addresses` belong to the NodePeers of this node's ranks, in their order: at least two, and
  // equally many on every node.
  HierarchicalCommunicator(const CommunicatorOptions& options, std::unique_ptr<NodePeers> peers,
                           const std::vector<std::string>& addresses);
  ~HierarchicalCommunicator() override;

  Outcome connect() override;
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) override;
  Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                   void* output) override;
  Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing, int from,
                                       std::span<std::byte> incoming) override;
  Outcome suffer(PeerTrouble trouble) override;
  void abort() override;

 private:
  class Work;
  class AllGather;
  class ReduceScatter;
  class Exchange;
  class Trouble;
  class Begun;

  // The node `distance` behind this one, in a circle, and our counterpart there.
  int node_at(int distance) const { return (own_node_ + distance + nodes_) % nodes_; }
  int counterpart(int node) const { return node * per_node_ + place_; }

  void carry_on();
  void carry_next(std::unique_lock<std::mutex>& lock);
  Outcome await_carried(const Work& work);
  Outcome await(Work& work);
  void withdraw(const Work& work);
  void fail(const std::string& why);
  Error failed(const std::string& collective);

  int per_node_;
  int nodes_;
  int own_node_;
  int place_;                             // on its node
  std::vector<std::vector<int>> blocks_;  // of each node: blocks_between() its ranks
  SharedMemoryCommunicator memory_;       // after connect() the thread's, as the network but for
  GlooCommunicator network_;              // waits
  ScratchPool scratch_;                   // of sums under way
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Work*> begun_;  // that the thread has not taken up
  std::string broken_;       // why nothing can be done any more
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace hpctl
