// SPDX-License-Identifier: Apache-2.0
// From StartWorkers to the command, environment and workload document of one rank.
#pragma once

#include <string>

#include "agent/holder_protocol.h"
#include "common/base/result.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

struct NodePlace {
  uint64_t job = 0;
  std::string node;
  std::string job_directory;      // working directory of the workers
  std::string program_directory;  // where hptrain is
};

// `local_rank` indexes start.ranks(). kInvalidArgument when the workload document is damaged, a
// variable has no proper name, or all is too large for one packet.
Result<holder::Spawn> make_spawn(const v1::StartWorkers& start, int32_t local_rank,
                                 const NodePlace& place);

}  // namespace hpctl::agent
