// SPDX-License-Identifier: Apache-2.0
// The agent proper: between the holder, which has the workers, and the controller, which decides.
//
// One thread. It takes the controller's actions to the supervisor (agent/core/supervisor.h), the
// supervisor's decisions to the holder, the holder's events to the controller as durable reports,
// and reads the workers' progress blocks for heartbeats. It stores everything that must outlive it
// in the holder before it sends it anywhere, so it may be killed at any instruction.
//
// Without a controller training goes on; the agent tries to reach one, after a while starts one
// (controller_access.h), and after the orphan timeout ends the node.
#pragma once

#include <cstdint>
#include <string>

#include "common/job/ids.h"
#include "common/job/paths.h"

namespace hpctl::agent {

struct AgentOptions {
  HomePaths paths;
  JobId job;
  std::string node;
  std::string program_directory;
  std::string version;
  // Where this program's data files are: beside the file that runs, which may be a local copy.
  std::string data_directory;
  // hpagent itself, from which it is started again as `hpagent confirm`.
  std::string program;
  // Without a sign of life for so long the holder replaces the agent; 0 = HolderLink's own limit.
  uint32_t alive_limit_ms = 0;
};

// Runs until the node ends. The socket to the holder is descriptor holder::kAgentSocketFd.
int run_agent(const AgentOptions& options);

}  // namespace hpctl::agent
