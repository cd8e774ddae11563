// SPDX-License-Identifier: Apache-2.0
// Finds out at the rendezvous what carries the collectives on CPUs: memory that the ranks share
// where all of a group are on one node, Gloo otherwise.
//
// Each rank writes into `rendezvous_dir`/nodes on which node it is and where it listens there, and
// reads the others' until one is of another node. Whether there is one is the same for all, so they
// agree without another message. Nothing has to be configured, and groups of one job may differ.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "trainer/comm/communicator.h"
#include "trainer/comm/rendezvous_store.h"

namespace hpctl {

class RendezvousCommunicator final : public Communicator {
 public:
  // `node` is NodePeers::this_node(), or, where that is an error, empty: like no other.
  RendezvousCommunicator(const CommunicatorOptions& options, std::string node);

  Outcome connect() override;
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) override;
  Result<CollectivePtr> begin_reduce_scatter(const float* input, size_t chunk,
                                             float* output) override;
  Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing, int from,
                                       std::span<std::byte> incoming) override;
  Outcome suffer(PeerTrouble trouble) override;
  void abort() override;

  // After connect().
  bool shares_memory() const { return shares_memory_; }

 private:
  Result<std::unique_ptr<Communicator>> find_out();

  CommunicatorOptions options_;
  std::string node_;
  bool shares_memory_ = false;
  std::mutex mutex_;  // guards what follows, for abort(); carrier_ is made once
  bool aborted_ = false;
  std::shared_ptr<RendezvousStore> store_;
  std::unique_ptr<Communicator> carrier_;
};

}  // namespace hpctl
