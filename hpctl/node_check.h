// SPDX-License-Identifier: Apache-2.0
// `hpctl nodes check NODE`: a deep check of a node (hpagent check all --deep), by srun where there
// is Slurm, and what came of it for the node's lemon score.
#pragma once

#include <string>

#include "common/job/paths.h"
#include "hpctl/command_line.h"

namespace hpctl {

struct NodeCheckOrder {
  std::string node;
  std::string job;       // within this Slurm job, beside what it runs; "" = in a job of its own
  bool for_all = false;  // the cluster controllers are told, too, as an operator may
};

// kExitOk: it passed, and its earlier records do not count any more. kExitFailed: it did not, which
// is a record against it; or it could not be made, which is none.
int check_node(const HomePaths& paths, const Invocation& invocation, const NodeCheckOrder& order);

}  // namespace hpctl
