// SPDX-License-Identifier: Apache-2.0
// PacketSocket: one end of a SOCK_SEQPACKET pair, between holder and agent proper or between a
// worker and its holder's side.
//
// The holder must never wait for the agent, nor a worker for who may not read: they use
// send_or_queue() and flush(). The agent may wait for the holder, which is always quick to read,
// and needs to know that a packet has left its own memory: it uses send_now().
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// Below the kernel's default socket buffer, so that any packet can be sent at all.
inline constexpr size_t kMaxPacketBytes = 192U << 10;

struct Packet {
  std::string bytes;
  UniqueFd descriptor;  // invalid when none came along
};

class PacketSocket {
 public:
  explicit PacketSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  static Result<std::pair<UniqueFd, UniqueFd>> make_pair();

  int fd() const { return fd_.get(); }

  // Sends, waiting while the peer's queue is full. kUnavailable when the peer is gone.
  Outcome send_now(std::string_view bytes);
  // Sends; false when the peer's queue is full.
  Result<bool> try_send(std::string_view bytes);
  // Sends, or keeps the packet (and a duplicate of `descriptor`, -1 = none) for flush().
  Outcome send_or_queue(std::string bytes, int descriptor = -1);
  // Sends what is queued until the peer's queue is full.
  Outcome flush();
  bool has_queued() const { return !queue_.empty(); }

  // The next packet; nullopt when none is waiting. kUnavailable when the peer is gone, behind all
  // that it had sent.
  Result<std::optional<Packet>> receive();

 private:
  UniqueFd fd_;
  std::deque<Packet> queue_;
};

}  // namespace hpctl
