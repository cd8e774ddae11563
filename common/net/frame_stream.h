// SPDX-License-Identifier: Apache-2.0
// FrameStream: packets over a byte stream (TCP), each preceded by its length as u32.
//
// For event loops; common/net/frame.h waits instead. The descriptor must be non-blocking. Neither
// end ever waits here: send() keeps what the kernel does not take for flush(), and receive() gives
// what has arrived. One thread.
//
// Two ends that share a secret can prove it to each other (authenticate()). The secret does not
// cross the wire. The end that dialled begins with 32 random bytes. From these and the secret both
// make a key for either direction, and every packet carries an HMAC-SHA-256 of its number and its
// bytes. Without the secret, a peer can make no packet, change none and leave none out, so a packet
// that arrives proves its sender. Others can read the packets, and play them back to the accepting
// end from the beginning, which peer_nonce() shows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// Larger frames are kInvalidArgument: what arrives is untrusted.
inline constexpr size_t kMaxStreamFrameBytes = 64U << 10;
// A peer that reads nothing while this much is waiting for it is given up.
inline constexpr size_t kMaxUnsentBytes = 1U << 20;

class FrameStream {
 public:
  enum class Side { kDialled, kAccepted };

  explicit FrameStream(UniqueFd fd) : fd_(std::move(fd)) {}

  // Before the first packet, on both ends; the accepting end does not speak first. From then on
  // receive() gives kPermissionDenied for a packet of one who does not know the secret.
  Outcome authenticate(const std::string& secret, Side side);
  // The random bytes of the end that dialled; of an accepted stream once a packet was received.
  const std::string& peer_nonce() const { return proof_->nonce; }

  int fd() const { return fd_.get(); }
  // kUnavailable when the peer is gone, kResourceExhausted when it does not read.
  Outcome send(std::string_view packet);
  Outcome flush();
  bool has_unsent() const { return !unsent_.empty(); }
  // The next packet; nullopt when none is complete. kUnavailable when the peer is gone.
  Result<std::optional<std::string>> receive();

 private:
  // State of an authenticated stream.
  struct Proof {
    std::string secret;  // until there are keys
    Side side;
    std::string nonce;  // of the end that dialled
    std::string send_key;
    std::string receive_key;
    uint64_t sent;  // packets
    uint64_t received;
  };

  void put(std::string_view frame);
  void make_keys(const std::string& nonce);
  Result<std::string> open(std::string frame);
  std::optional<std::string> take_frame();

  UniqueFd fd_;
  std::string unsent_;
  std::string received_;
  std::optional<Proof> proof_;
};

}  // namespace hpctl
