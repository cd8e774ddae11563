// SPDX-License-Identifier: Apache-2.0
// Lemon scores by the jobs of all users, of the cluster controllers (decision 1607).
#pragma once

#include <string>

#include "common/base/result.h"
#include "hpctl/terminal.h"

namespace hpctl {

// `hpctl nodes lemons -A`: of each machine the highest score of the cluster controllers that
// answer; an exit code.
int show_fleet_lemons(const Terminal& terminal, bool json);

// `hpctl nodes check -A`: what a deep check of the node has found. kPermissionDenied: the caller is
// no operator.
struct NodeCheckResult {
  std::string node;
  std::string instance;  // "" = not known
  bool passed = false;
  std::string worst;  // what failed
};
Outcome tell_cluster(const NodeCheckResult& result);

}  // namespace hpctl
