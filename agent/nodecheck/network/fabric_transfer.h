// SPDX-License-Identifier: Apache-2.0
// One pair's transfer over libfabric, as a separate process (`hpagent check network --fabric IP
// --dialled yes|no`): a provider that crashes or hangs ends this process, which is a result, and
// not the check. (The tcp provider in libfabric 1.17 crashes when an endpoint is closed with sends
// in flight, which a slow or dead path leaves.) Its parent (fabric_rails.h) has made the pair's
// connection, which is descriptor kFabricPairSocket here; the answer, {"bytes_per_s", "trouble",
// "wrong"} in a frame, goes to kFabricAnswerSocket.
//
// An endpoint at each of the node's devices (with efa all of them, with another provider the device
// of the node's address), and at each a stream of known messages both ways, as fast as they go for
// kExchangeTime. Arriving bytes are compared with the sent ones
// (agent/nodecheck/core/known_bytes.h). The i-th device of one node meets the i-th of the other.
// The two agree over their connection, in frames of JSON that both send:
//
//   {"provider", "names": [hexadecimal]}    how its endpoints are reached
//   {"sent": [N]}                           after kExchangeTime: messages by device
//   {"done": true}                          all of them have arrived: the other may end
#pragma once

#include <chrono>
#include <string>

#include "agent/nodecheck/network/exchange.h"

namespace hpctl::agent {

inline constexpr int kFabricPairSocket = 3;
inline constexpr int kFabricAnswerSocket = 4;
inline constexpr auto kFabricOpenLimit = std::chrono::milliseconds(10'000);

// `dialled`: the connection is ours. Ends the process, without closing what libfabric is in the
// middle of.
[[noreturn]] void run_fabric_transfer(const std::string& own_ip, bool dialled);

}  // namespace hpctl::agent
