// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group on one node meet, share a file, and detect the end of a peer: a Unix
// socket between every two of them.
//
// Each rank listens at an abstract address, a random name that lies in no directory and ends with
// its socket. A rank connects to the ranks before it and accepts the ranks after it; the first
// sends its file along (SCM_RIGHTS). Only processes of our own uid are accepted. Afterwards no more
// data are sent, so a readable socket means that its peer has closed it: by its process, or by the
// kernel when the process ended, before its parent can reap it.
//
// Threads: abort(), lost() and cut() are for any, the others for the one that uses the
// communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/net/packet_socket.h"
#include "trainer/comm/shared_segment.h"

namespace hpctl {

class NodePeers {
 public:
  using Clock = std::chrono::steady_clock;

  // A name for where abstract addresses are the same: a boot of a machine and a network namespace.
  // With HPTRAIN_NODES_APART in the environment the nodes of a job (HPCTL_NODE) that are on one
  // machine are as many nodes, for tests.
  static Result<std::string> this_node();

  // Listens at a new address.
  static Result<std::unique_ptr<NodePeers>> listen();
  // Closes the sockets.
  ~NodePeers();
  NodePeers(const NodePeers&) = delete;
  NodePeers& operator=(const NodePeers&) = delete;

  const std::string& address() const { return address_; }

  // Meets, as `rank`, the ranks at `addresses`, at most SharedSegment::kMostRanks, and returns the
  // file of the first: its argument `file`, which is invalid on the others. kUnavailable names the
  // missing ranks, and calls the first one rank `first_name`.
  Result<UniqueFd> meet(int rank, const std::vector<std::string>& addresses, UniqueFd file,
                        Clock::time_point deadline, int first_name = 0);
  // Ends meet(), also one to come.
  void abort();

  // After meet(). `lost_one` is called on a thread of ours whenever lost() has become more.
  Outcome watch(std::function<void()> lost_one);
  // Those whose end of the socket is closed.
  RankSet lost() const { return lost_.load(std::memory_order_acquire); }
  // Closes all connections for both sides, on purpose. Any thread.
  void cut();

 private:
  NodePeers(std::string address, UniqueFd listener, UniqueFd stop);

  int ranks() const { return static_cast<int>(peers_.size()); }
  bool is_met(int peer) const { return peers_[static_cast<size_t>(peer)].fd() >= 0; }
  std::string name_of(int peer) const { return "rank " + std::to_string(first_name_ + peer); }
  std::string missing() const;
  Outcome wait_for(int fd, Clock::time_point deadline, const std::string& whom);
  Outcome connect_to(int peer, const std::string& address);
  Outcome accept_one(Clock::time_point deadline);
  void run(const std::function<void()>& lost_one);

  int rank_ = 0;
  int first_name_ = 0;
  std::string address_;
  UniqueFd listener_;
  UniqueFd stop_;                    // an eventfd, readable for ever once it is to end
  std::vector<PacketSocket> peers_;  // by rank; own without a descriptor
  std::atomic<RankSet> lost_{0};
  std::thread watcher_;
};

}  // namespace hpctl
