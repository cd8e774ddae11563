// SPDX-License-Identifier: Apache-2.0
// The holder: the first process of a node. It is small, std-only and single-threaded, so little can
// go wrong in it. It spawns the workers, keeps their shared memory and logs, stores the state that
// the agent proper must not lose (agent/holder/holder_protocol.h), and restarts the agent proper
// when that dies, so an agent's crash does not disturb training.
//
// When the holder itself dies, its children die with it: the workers and the agent proper by
// PDEATHSIG, which is bound to the holder's main and only thread; the reaper ends the descendants
// of workers (agent/holder/reaper.h).
#pragma once

#include <string>
#include <vector>

#include "agent/core/respawn.h"
#include "agent/holder/worker_table.h"
#include "common/job/ids.h"
#include "common/job/paths.h"
#include "common/job/stack_files.h"

namespace hpctl::holder {

struct HolderOptions {
  HomePaths paths;
  JobId job;
  std::string node;
  // Command lines of the agent proper and of the reaper (its boot id is appended).
  std::vector<std::string> agent_argv;
  std::vector<std::string> reaper_argv;
  std::string stacks_program;  // hpstacks
  PingTimes ping_times = {};   // of standbys
  int64_t stacks_limit_ms = stacks_limit_or(kStacksLimitMs);
  int max_short_lives = agent::RespawnPolicy::kMaxShortLives;  // of the agent and of the reaper
};

// Runs until told to end. Exit code: 0 ended on request, or another holder has the node; 1 a fault
// that the log names. Call from main(): blocks signals and makes this process a subreaper.
int run_holder(const HolderOptions& options);

}  // namespace hpctl::holder
