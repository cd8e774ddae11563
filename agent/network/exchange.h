// SPDX-License-Identifier: Apache-2.0
// One pair's part of a round of the network check: a TCP connection between the two, over which
// both send as much as they can for kExchangeTime, both ways at once, as an all-reduce of two does.
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

// A listener at the address with a port that the kernel chooses.
Result<UniqueFd> listen_at(const std::string& ip);

// A connection to "IP:PORT" that has said `word`, of 32 bytes.
Result<UniqueFd> dial(const std::string& address, const std::string& word);
// The next connection at the listener that says `word`; others are closed.
Result<UniqueFd> await(int listener, const std::string& word);

struct Received {
  uint64_t bytes = 0;
  double seconds = 0;  // until the last of them
};
// Sends and receives; the peer does the same.
Received exchange(int connection);

}  // namespace hpctl::agent
