// SPDX-License-Identifier: Apache-2.0
// Rank 0's other part of the network check: waits for the nodes, has them meet in rounds
// (agent/nodecheck/core/network_check.h), and judges.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/nodecheck/core/network_check.h"
#include "agent/nodecheck/core/network_way.h"
#include "common/base/result.h"

namespace hpctl::agent {

struct CoordinatorOptions {
  int ranks = 0;
  std::string meeting_path;
  std::chrono::milliseconds patience{60'000};  // for all to come
  std::optional<NetworkWay> way;               // nullopt = what the nodes have
};

struct NetworkReport {
  NetworkWay way = NetworkWay::kTcp;
  // The transport: "TCP", "NCCL 2.27.7 over Libfabric (efa)", "libfabric 1.17 (efa)".
  std::string by;
  NetworkVerdict verdict;                     // nodes by their place in `names`
  std::vector<std::string> names;             // of those that took part
  std::vector<int> absent;                    // ranks
  std::map<std::string, std::string> unable;  // nodes that came and cannot take part; why
  // Nodes whose NCCL or libfabric took another way than they have; what to do.
  std::map<std::string, std::string> fallbacks;
  std::map<NodePair, std::string> troubles;  // what was said last of pairs that are bad
  // Nodes whose wall clocks are far from the others' (ClockOffsets). A warning: no verdict hangs on
  // it.
  std::map<std::string, int64_t> clocks_ahead_ms;
  double seconds = 0;  // of the rounds

  bool is_good() const {
    return verdict.nodes.empty() && verdict.links.empty() && verdict.wrong.nodes.empty() &&
           verdict.wrong.pairs.empty() && absent.empty() && unable.empty() && fallbacks.empty();
  }
};

// Any thread.
Result<NetworkReport> coordinate(const CoordinatorOptions& options);

}  // namespace hpctl::agent
