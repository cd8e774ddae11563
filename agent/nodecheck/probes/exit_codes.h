// SPDX-License-Identifier: Apache-2.0
// Exit codes of hpagent check, of nodes and of the network.
#pragma once

namespace hpctl::agent {

inline constexpr int kExitHealthy = 0;    // pass, warn or skipped
inline constexpr int kExitUnhealthy = 1;  // some finding is fail
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNeedsReboot = 3;  // some is, and a reboot may mend all that fails

}  // namespace hpctl::agent
