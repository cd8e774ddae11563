// SPDX-License-Identifier: Apache-2.0
// hpagent check network: the processes of an srun, one per node, find out which of their nodes and
// which links between them are slow or dead (agent/nodecheck/core/network_check.h).
#pragma once

#include <string>
#include <vector>

namespace hpctl::agent {

// Facts about the machine that it runs on.
struct NetworkMachine {
  std::string program;  // hpagent, of which GPUs' processes are made
  int efa_devices = 0;
};

// `arguments` are those after `network`. The exit codes of hpagent check; of rank 0 they are the
// verdict, the others have kExitHealthy unless they could not take part.
int run_check_network(const std::vector<std::string>& arguments, const NetworkMachine& machine);

}  // namespace hpctl::agent
