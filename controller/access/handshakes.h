// SPDX-License-Identifier: Apache-2.0
// The limit of connections that may be in their handshake at once. When all agents of a large job
// come at the same moment, the processors are busy with handshakes for seconds. If all began at
// once, all would end at the end, including those that their agents have given up. A connected peer
// would wait for its turn so long that it takes us for dead. So few begin at once, in the order of
// arrival, and each is done within a fraction of a second. The others wait in the kernel, where
// they cost nothing.
//
// A handshake is over when a call has come over its connection. A connection without a call, from a
// stranger or from a peer that has gone, counts for kPatience and no longer: it delays the others
// and does not block them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "common/base/fd.h"

namespace hpctl {

// Any thread.
class Handshakes {
 public:
  using Clock = std::chrono::steady_clock;
  // At 3 ms each a tenth of a second on two processors, and enough for sixteen where the answers of
  // the peers take 10 ms.
  static constexpr size_t kMost = 64;
  static constexpr std::chrono::milliseconds kPatience{1'000};

  Handshakes();

  // The port identifies a peer. gRPC writes its address in ways that differ with the release and
  // the family, but the port is always the number at the end; of two machines that come from the
  // same port at the same time one may count for the other.
  void begin(uint16_t port, Clock::time_point now);
  // `peer` as gRPC names it; of one that has not begun, or has ended, nothing follows.
  void end(const std::string& peer);

  // Until another one may begin: 0 = at once.
  std::chrono::milliseconds until_room(Clock::time_point now);
  // An eventfd, non-blocking: readable after an end() that made room where there was none.
  int room_fd() const { return room_.get(); }

 private:
  const UniqueFd room_;
  std::mutex mutex_;
  std::multimap<uint16_t, Clock::time_point> begun_;  // by port
};

}  // namespace hpctl
