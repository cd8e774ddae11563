// SPDX-License-Identifier: Apache-2.0
// Finds out at the rendezvous what carries the collectives on CPUs: memory that the ranks share
// where all of a group are on one node; that and Gloo where they are on several, with as many
// consecutive ranks, more than one, on each; Gloo otherwise.
//
// Each rank writes into `rendezvous_dir`/nodes on which node it is and where it listens there, and
// reads the others'. They are the same for all, so the ranks agree without another message. Nothing
// has to be configured, groups of one job may differ, and no bit of a sum depends on it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/rendezvous_store.h"

namespace hpctl {

enum class Carrier { kSharedMemory, kHierarchical, kGloo };

class RendezvousCommunicator final : public Communicator {
 public:
  // `node` is NodePeers::this_node(), or, where that is an error, empty: like no other.
  RendezvousCommunicator(const CommunicatorOptions& options, std::string node);

  Outcome connect() override;
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) override;
  Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                   void* output) override;
  Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing, int from,
                                       std::span<std::byte> incoming) override;
  void* allocate_shared(size_t bytes) override;
  Outcome await_readers(std::span<const std::byte> shared) override;
  Outcome suffer(PeerTrouble trouble) override;
  void abort() override;

  // After connect().
  Carrier carrier() const { return kind_; }

 private:
  struct Place;

  Result<std::unique_ptr<Communicator>> find_out();
  std::vector<Place> places(const Place& own);
  static int ranks_of_each_node(const std::vector<Place>& places);
  Carrier carrier_for(int per_node) const;
  void say_what_carries(int per_node) const;

  CommunicatorOptions options_;
  std::string node_;
  Carrier kind_ = Carrier::kGloo;
  std::mutex mutex_;  // guards what follows, for abort(); carrier_ is made once
  bool aborted_ = false;
  std::shared_ptr<RendezvousStore> store_;
  std::unique_ptr<Communicator> carrier_;
};

}  // namespace hpctl
