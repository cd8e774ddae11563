// SPDX-License-Identifier: Apache-2.0
// Where the controller of a Slurm job is to run: at the cluster controllers that this machine is
// configured for (common/rpc/cluster_client.h), if one answers and serves this user, else on the
// job's first node.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

struct Placement {
  std::string cluster;  // all of them, in order; "" = on the job's first node
  std::string notice;   // why it is not those that are configured; "" = it is
};

// Asks them, at most some seconds. An error where the configuration cannot be understood.
Result<Placement> place_controller();

}  // namespace hpctl
