// SPDX-License-Identifier: Apache-2.0
// The agent's end of the socket to its holder, and the signs of life that go over it in both
// directions. The holder replaces a hung agent. A holder that no longer answers could neither stop
// nor start anything, so its death frees the node.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/holder/holder_protocol.h"
#include "common/base/fd.h"
#include "common/net/packet_socket.h"

namespace hpctl::agent {

class HolderLink {
 public:
  // A hung agent is replaced long before recovery.heartbeat_timeout, and its holder answers probes
  // meanwhile: it does not cost the node.
  static constexpr uint32_t kAliveLimitMs = 1'500;

  HolderLink(PacketSocket socket, uint64_t holder_pid, uint32_t alive_limit_ms)
      : socket_(std::move(socket)),
        holder_pid_(holder_pid),
        alive_limit_ms_(alive_limit_ms == 0 ? kAliveLimitMs : alive_limit_ms) {}

  int fd() const { return socket_.fd(); }

  // Waits while the holder's queue is full. A holder that is gone makes broken() true.
  void tell(const holder::ToHolder& message);

  struct Incoming {
    holder::ToAgent event;
    UniqueFd descriptor;  // invalid when none came along
  };
  // The next event; nullopt when none is waiting or the holder is gone. Answers to signs of life
  // are taken here.
  std::optional<Incoming> receive();

  // Its death takes the agent along anyway.
  bool broken() const { return broken_; }

  // A sign of life, and the judgement on a holder that has left too many unanswered. Due at
  // alive_at_ms().
  void show_life(int64_t now_ms);
  int64_t alive_at_ms() const { return alive_at_ms_; }

 private:
  PacketSocket socket_;
  const uint64_t holder_pid_;
  const uint32_t alive_limit_ms_;
  bool broken_ = false;
  int64_t alive_at_ms_ = 0;
  int unanswered_signs_ = 0;
};

}  // namespace hpctl::agent
