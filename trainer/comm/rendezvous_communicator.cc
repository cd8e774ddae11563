// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/rendezvous_communicator.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "trainer/comm/node_peers.h"
#include "trainer/comm/shared_memory_communicator.h"

#ifdef HPCTL_GLOO
#include "trainer/comm/gloo_communicator.h"
#endif

namespace hpctl {

namespace {

// "NODE ADDRESS"; a rank without a node has no address.
struct Place {
  std::string node;
  std::string address;
};

std::vector<char> to_record(const Place& place) {
  const std::string text = place.node + " " + place.address;
  return {text.begin(), text.end()};
}

Place from_record(const std::vector<char>& record) {
  const std::string text(record.begin(), record.end());
  const size_t space = text.find(' ');
  if (space == std::string::npos) return {};
  return {text.substr(0, space), text.substr(space + 1)};
}

Result<std::unique_ptr<Communicator>> over_gloo(const CommunicatorOptions& options) {
#ifdef HPCTL_GLOO
  return std::unique_ptr<Communicator>(std::make_unique<GlooCommunicator>(options));
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
  if (world_size() > SharedSegment::kMostRanks) return over_gloo(options_);
  const auto store = std::make_shared<RendezvousStore>(options_.rendezvous_dir + "/nodes",
                                                       options_.rendezvous_timeout);
  {
    const std::lock_guard lock(mutex_);
    store_ = store;
    if (aborted_) store->abort();
  }
  Place own;
  std::unique_ptr<NodePeers> peers;
  if (!node_.empty()) {
    Result<std::unique_ptr<NodePeers>> listening = NodePeers::listen(rank(), world_size());
    if (listening.ok()) {
      peers = std::move(*listening);
      own = {node_, peers->address()};
    } else {
      log_warning("collectives go over Gloo: " + listening.error().message);
    }
  }
  store->set(std::to_string(rank()), to_record(own));
  std::vector<std::string> addresses(static_cast<size_t>(world_size()));
  for (int distance = 1; distance < world_size(); ++distance) {
    const int other = (rank() + distance) % world_size();
    Place place = from_record(store->get(std::to_string(other)));
    if (place.node.empty() || place.node != own.node) return over_gloo(options_);
    addresses[static_cast<size_t>(other)] = std::move(place.address);
  }
  shares_memory_ = true;
  return std::unique_ptr<Communicator>(
      std::make_unique<SharedMemoryCommunicator>(options_, std::move(peers), std::move(addresses)));
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

Result<CollectivePtr> RendezvousCommunicator::begin_reduce_scatter(const float* input, size_t chunk,
                                                                   float* output) {
  return carrier_->begin_reduce_scatter(input, chunk, output);
}

Result<CollectivePtr> RendezvousCommunicator::begin_exchange(int to,
                                                             std::span<const std::byte> outgoing,
                                                             int from,
                                                             std::span<std::byte> incoming) {
  return carrier_->begin_exchange(to, outgoing, from, incoming);
}

Outcome RendezvousCommunicator::suffer(PeerTrouble trouble) { return carrier_->suffer(trouble); }

void RendezvousCommunicator::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (store_) store_->abort();
  if (carrier_) carrier_->abort();
}

}  // namespace hpctl
