// SPDX-License-Identifier: Apache-2.0
// A node's part in the rounds of the network check over libfabric: an endpoint at each of its
// devices (with efa all of them, with another provider that of the node's address), and at each a
// stream of known messages both ways, as fast as they go for kExchangeTime. What arrives is
// compared with what was sent (agent/core/known_bytes.h). The i-th device of one node meets the
// i-th of the other; endpoints are made for each round, so that none inherits what another left.
//
// Two nodes agree over their connection (exchange.h), in frames of JSON that both send:
//
//   {"provider", "names": [hexadecimal]}    how its endpoints are reached
//   {"sent": [N]}                           after kExchangeTime: messages by device
//   {"done": true}                          all of them have arrived: it may close its endpoints
//
// In the process of the check: libfabric is asked and never waited for. One that crashes or does
// not come back ends this node's part, which the others name.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/core/network_way.h"
#include "agent/fabric/fabric.h"
#include "agent/network/exchange.h"

namespace hpctl::agent {

inline constexpr auto kFabricOpenLimit = std::chrono::milliseconds(10'000);
// Within which both ends of a pair know.
inline constexpr auto kFabricRoundPatience = kRoundPatience + kFabricOpenLimit;

class FabricRails {
 public:
  // What libfabric chooses on this node to reach others by `own_ip`: fills `fabric` and
  // `fabric_trouble`.
  void open(const std::string& own_ip, NodeMeans& means);
  // The pair's transfer. `dialled`: the connection is ours.
  Transfer exchange_with_peer(int connection, bool dialled) const;
  UsedNetwork network() const { return network_; }

 private:
  std::vector<FabricDomain> domains_;
  UsedNetwork network_;
};

}  // namespace hpctl::agent
