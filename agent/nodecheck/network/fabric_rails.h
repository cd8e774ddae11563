// SPDX-License-Identifier: Apache-2.0
// A node's part in the rounds of the network check over libfabric: which devices it has, and a
// process for each pair's transfer (fabric_transfer.h), which is killed where it does not answer.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/nodecheck/core/network_way.h"
#include "agent/nodecheck/fabric/fabric.h"
#include "agent/nodecheck/network/exchange.h"
#include "agent/nodecheck/network/fabric_transfer.h"

namespace hpctl::agent {

// Both ends of a pair know within these: their process starts and has its endpoints, then the
// transfer.
inline constexpr auto kFabricTransferLimit = kFabricOpenLimit + kRoundPatience;
inline constexpr auto kFabricRoundPatience = kMeetPatience + kFabricTransferLimit;

// The devices through which this node reaches others: of the provider that libfabric chooses, with
// efa all of them, else the one of that address. Never empty.
Result<std::vector<FabricDomain>> fabric_rails(const std::string& own_ip);

class FabricRails {
 public:
  // `program`: hpagent.
  explicit FabricRails(std::string program) : program_(std::move(program)) {}

  // Fills `fabric` and `fabric_trouble`.
  void open(const std::string& own_ip, NodeMeans& means);
  // The pair's transfer. `dialled`: the connection is ours. From one thread, which lives as long.
  Transfer exchange_with_peer(int connection, bool dialled) const;
  UsedNetwork network() const { return network_; }

 private:
  Result<Transfer> try_to_exchange(int connection, bool dialled) const;

  const std::string program_;
  std::string own_ip_;
  UsedNetwork network_;
};

}  // namespace hpctl::agent
