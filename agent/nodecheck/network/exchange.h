// SPDX-License-Identifier: Apache-2.0
// One pair's part of a round of the network check: a TCP connection between the two, over which
// both send as much as they can for kExchangeTime, both ways at once, like an all-reduce of two.
// Everything has a deadline: a path that is dead, or that stops in the middle, is a result.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl::agent {

inline constexpr auto kExchangeTime = std::chrono::milliseconds(400);
inline constexpr auto kMeetPatience = std::chrono::milliseconds(3'000);
inline constexpr auto kDrainPatience = std::chrono::milliseconds(2'000);
// Within which both ends of a pair know.
inline constexpr auto kRoundPatience = kMeetPatience + kExchangeTime + kDrainPatience;

// The smallest divisor of a rate.
inline constexpr double kShortestSeconds = 1e-6;

// A listener at the address with a port that the kernel chooses.
Result<UniqueFd> listen_at(const std::string& ip);

// A connection to "IP:PORT" that has said `word`, of 32 bytes.
Result<UniqueFd> dial(const std::string& address, const std::string& word);
// The next connection at the listener that says `word`; others are closed.
Result<UniqueFd> await(int listener, const std::string& word);

// A node's report of its part in a pair's transfer, over any transport.
struct Transfer {
  double bytes_per_s = 0;  // that came; 0 = nothing did
  std::string trouble;     // why; "" = nothing to say
  std::string wrong;       // what came otherwise than it was sent; "" = nothing
};
// Sends and receives over TCP; the peer does the same.
Transfer exchange(int connection);

}  // namespace hpctl::agent
