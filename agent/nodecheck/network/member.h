// SPDX-License-Identifier: Apache-2.0
// A node's part of the network check: it meets whom the coordinator says and tells what came.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "agent/nodecheck/core/network_way.h"
#include "common/base/result.h"

namespace hpctl::agent {

struct MemberOptions {
  int rank = 0;
  std::string name;                            // for people
  std::string meeting_path;                    // where the coordinator says how to find it
  std::string program;                         // hpagent
  int efa_devices = 0;                         // of this node
  std::optional<NetworkWay> way;               // asked for; what that needs is looked for
  std::chrono::milliseconds patience{60'000};  // for the coordinator to come
};

// Until the coordinator is done. kUnavailable: it did not come, or is gone.
Outcome be_member(const MemberOptions& options);

}  // namespace hpctl::agent
