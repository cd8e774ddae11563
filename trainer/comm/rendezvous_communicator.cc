// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/rendezvous_communicator.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/shared_memory_communicator.h"

#ifdef HPCTL_GLOO
#include "trainer/comm/gloo_communicator.h"
#include "trainer/comm/hierarchical_communicator.h"
#endif

namespace hpctl {

// "NODE ADDRESS"; a rank without a node has no address.
struct RendezvousCommunicator::Place {
  std::string node;
  std::string address;
};

namespace {

// Gloo alone without `addresses`, which belong to this node's ranks.
Result<std::unique_ptr<Communicator>> over_network(
    const CommunicatorOptions& options, [[maybe_unused]] std::unique_ptr<NodePeers> peers,
    [[maybe_unused]] const std::vector<std::string>& addresses) {
#ifdef HPCTL_GLOO
  std::unique_ptr<Communicator> made;
  if (addresses.empty()) {
    made = std::make_unique<GlooCommunicator>(options);
  } else {
    made = std::make_unique<HierarchicalCommunicator>(options, std::move(peers), addresses);
  }
  return made;
#else
  return Error{ErrorCode::kFailedPrecondition,
               "this hptrain was built without Gloo, so rank " + std::to_string(options.rank) +
                   " cannot meet ranks on other nodes but by GPUs; build it where Gloo is "
                   "installed"};
#endif
}

}  // namespace

RendezvousCommunicator::RendezvousCommunicator(const CommunicatorOptions& options, std::string node)
    : Communicator(options), options_(options), node_(std::move(node)) {}

Result<std::unique_ptr<Communicator>> RendezvousCommunicator::find_out() {
  Place own;
  std::unique_ptr<NodePeers> peers;
  if (!node_.empty()) {
    Result<std::unique_ptr<NodePeers>> listening = NodePeers::listen();
    if (listening.ok()) {
      peers = std::move(*listening);
      own = {node_, peers->address()};
    } else {
      log_warning("collectives go over Gloo: " + listening.error().message);
    }
  }
  const std::vector<Place> all = places(own);
  const int per_node = ranks_of_each_node(all);
  kind_ = carrier_for(per_node);
  if (rank() == 0) say_what_carries(per_node);
  std::vector<std::string> addresses;
  if (kind_ != Carrier::kGloo) {
    const int first = rank() / per_node * per_node;
    for (int r = first; r < first + per_node; ++r) {
      addresses.push_back(all[static_cast<size_t>(r)].address);
    }
  }
  if (kind_ != Carrier::kSharedMemory) return over_network(options_, std::move(peers), addresses);
  return std::unique_ptr<Communicator>(
      std::make_unique<SharedMemoryCommunicator>(options_, std::move(peers), std::move(addresses)));
}

// Of all ranks. Throws as the store does.
std::vector<RendezvousCommunicator::Place> RendezvousCommunicator::places(const Place& own) {
  const auto store = std::make_shared<RendezvousStore>(options_.rendezvous_dir + "/nodes",
                                                       options_.rendezvous_timeout);
  {
    const std::lock_guard lock(mutex_);
    store_ = store;
    if (aborted_) store->abort();
  }
  const std::string record = own.node + " " + own.address;
  store->set(std::to_string(rank()), {record.begin(), record.end()});
  std::vector<Place> all(static_cast<size_t>(world_size()));
  for (int distance = 0; distance < world_size(); ++distance) {
    const int r = (rank() + distance) % world_size();
    const std::vector<char> said = store->get(std::to_string(r));
    const std::string text(said.begin(), said.end());
    const size_t space = text.find(' ');
    if (space == std::string::npos) continue;
    all[static_cast<size_t>(r)] = {text.substr(0, space), text.substr(space + 1)};
  }
  return all;
}

// 0 where they differ, or the ranks of a node are not consecutive, or one is on no node.
int RendezvousCommunicator::ranks_of_each_node(const std::vector<Place>& places) {
  std::vector<int> counts;
  std::set<std::string> nodes;
  for (size_t r = 0; r < places.size(); ++r) {
    if (r > 0 && places[r].node == places[r - 1].node) {
      ++counts.back();
      continue;
    }
    if (places[r].node.empty() || !nodes.insert(places[r].node).second) return 0;
    counts.push_back(1);
  }
  const bool alike = std::all_of(counts.begin(), counts.end(),
                                 [&counts](int count) { return count == counts.front(); });
  return alike ? counts.front() : 0;
}

Carrier RendezvousCommunicator::carrier_for(int per_node) const {
  if (per_node < 2 || per_node > SharedSegment::kMostRanks) return Carrier::kGloo;
  return per_node == world_size() ? Carrier::kSharedMemory : Carrier::kHierarchical;
}

void RendezvousCommunicator::say_what_carries(int per_node) const {
  if (kind_ == Carrier::kHierarchical) {
    log_info("collectives go through memory among the " + std::to_string(per_node) +
             " ranks of a node, and over Gloo between the " +
             std::to_string(world_size() / per_node) + " nodes");
  } else if (kind_ == Carrier::kGloo && per_node != 1) {
    log_info(
        "collectives go over Gloo alone, also among ranks of a node: memory would need as many "
        "consecutive ranks on every node, at most " +
        std::to_string(SharedSegment::kMostRanks));
  }
}

Outcome RendezvousCommunicator::connect() {
  Result<std::unique_ptr<Communicator>> found = [this]() -> Result<std::unique_ptr<Communicator>> {
    try {
      return find_out();
    } catch (const std::exception& e) {
      return Error{kPeerLost, "collective 0 (rendezvous) of rank " + std::to_string(rank()) +
                                  " failed: " + e.what()};
    }
  }();
  if (!found.ok()) return found.error();
  {
    const std::lock_guard lock(mutex_);
    carrier_ = std::move(*found);
    if (aborted_) carrier_->abort();
  }
  return carrier_->connect();
}

Result<CollectivePtr> RendezvousCommunicator::begin_all_gather(void* buffer, size_t chunk_bytes) {
  return carrier_->begin_all_gather(buffer, chunk_bytes);
}

Result<CollectivePtr> RendezvousCommunicator::begin_sums(NumberType type, const void* input,
                                                         size_t chunk, void* output) {
  return carrier_->begin_sums(type, input, chunk, output);
}

Result<CollectivePtr> RendezvousCommunicator::begin_exchange(int to,
                                                             std::span<const std::byte> outgoing,
                                                             int from,
                                                             std::span<std::byte> incoming) {
  return carrier_->begin_exchange(to, outgoing, from, incoming);
}

void* RendezvousCommunicator::allocate_shared(size_t bytes) {
  return carrier_->allocate_shared(bytes);
}

Outcome RendezvousCommunicator::await_readers(std::span<const std::byte> shared) {
  return carrier_->await_readers(shared);
}

Outcome RendezvousCommunicator::suffer(PeerTrouble trouble) { return carrier_->suffer(trouble); }

void RendezvousCommunicator::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (store_) store_->abort();
  if (carrier_) carrier_->abort();
}

}  // namespace hpctl
