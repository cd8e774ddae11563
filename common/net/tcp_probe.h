// SPDX-License-Identifier: Apache-2.0
// Whether a process listens at an address: a TCP connection that carries no data. The answer
// distinguishes a process that is gone (refused, by a machine that is up) from a machine that is
// gone.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace hpctl {

enum class TcpAnswer {
  kAccepted,
  kRefused,
  kNone,      // within the patience, or no way leads there
  kNotAsked,  // no such address, or no socket to be had here
};

// One answer for each "IP:PORT". Waits at most `patience` for all of them together.
std::vector<TcpAnswer> probe_tcp(const std::vector<std::string>& addresses,
                                 std::chrono::milliseconds patience);

}  // namespace hpctl
