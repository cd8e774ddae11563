// SPDX-License-Identifier: Apache-2.0
// Rank 0's other part of the network check: waits for the nodes, has them meet in rounds
// (agent/core/network_check.h), and judges.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/core/network_check.h"
#include "common/base/result.h"

namespace hpctl::agent {

struct CoordinatorOptions {
  int ranks = 0;
  std::string meeting_path;
  std::chrono::milliseconds patience{60'000};  // for all to come
};

struct NetworkReport {
  NetworkVerdict verdict;          // nodes by their place in `names`
  std::vector<std::string> names;  // of those that came
  std::vector<int> absent;         // ranks
  double seconds = 0;              // of the rounds

  bool is_good() const { return verdict.nodes.empty() && verdict.links.empty() && absent.empty(); }
};

// Any thread.
Result<NetworkReport> coordinate(const CoordinatorOptions& options);

}  // namespace hpctl::agent
