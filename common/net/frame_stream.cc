// SPDX-License-Identifier: Apache-2.0
#include "common/net/frame_stream.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "common/net/hmac.h"

namespace hpctl {
namespace {

uint32_t frame_length(const std::string& bytes) {
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length;
}

constexpr size_t kNonceBytes = 32;

std::string tag_of(const std::string& key, uint64_t number, std::string_view packet) {
  std::string text(reinterpret_cast<const char*>(&number), sizeof(number));
  return hmac_sha256(key, text.append(packet));
}

Error not_proven(const char* what) {
  return Error{ErrorCode::kPermissionDenied,
               std::string("the peer does not know the secret of this connection (") + what + ")"};
}

}  // namespace

Outcome FrameStream::authenticate(const std::string& secret, Side side) {
  proof_ = Proof{secret, side, "", "", "", 0, 0};
  if (side == Side::kAccepted) return Ok{};
  std::string nonce(kNonceBytes, '\0');
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    return errno_error("cannot get random bytes");
  }
  make_keys(nonce);
  put(nonce);
  return flush();
}

// They differ by direction, so that nothing can be sent back to whom it came from.
void FrameStream::make_keys(const std::string& nonce) {
  proof_->nonce = nonce;
  proof_->send_key = hmac_sha256(proof_->secret, "hpctl to the accepting end " + nonce);
  proof_->receive_key = hmac_sha256(proof_->secret, "hpctl to the dialling end " + nonce);
  if (proof_->side == Side::kAccepted) std::swap(proof_->send_key, proof_->receive_key);
  proof_->secret.clear();
}

Result<std::string> FrameStream::open(std::string frame) {
  if (frame.size() < kHmacBytes) return not_proven("a packet without proof");
  const size_t size = frame.size() - kHmacBytes;
  const std::string_view packet(frame.data(), size);
  const std::string tag = tag_of(proof_->receive_key, proof_->received++, packet);
  if (!same_bytes(tag, std::string_view(frame).substr(size))) {
    return not_proven("a packet with a wrong proof");
  }
  frame.resize(size);
  return frame;
}

void FrameStream::put(std::string_view frame) {
  const auto length = static_cast<uint32_t>(frame.size());
  unsent_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  unsent_.append(frame);
}

Outcome FrameStream::send(std::string_view packet) {
  const size_t most = kMaxStreamFrameBytes - (proof_ ? kHmacBytes : 0);
  if (packet.size() > most) {
    return Error{ErrorCode::kInvalidArgument,
                 "a packet of " + std::to_string(packet.size()) + " bytes is too large"};
  }
  if (!proof_) {
    put(packet);
  } else if (proof_->send_key.empty()) {
    return Error{ErrorCode::kFailedPrecondition, "the peer has not begun"};
  } else {
    put(std::string(packet) + tag_of(proof_->send_key, proof_->sent++, packet));
  }
  return flush();
}

Outcome FrameStream::flush() {
  while (!unsent_.empty()) {
    const ssize_t n = ::send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) {
      return Error{ErrorCode::kUnavailable,
                   std::string("the connection broke: ") + std::strerror(errno)};
    }
    if (n < 0) break;
    unsent_.erase(0, static_cast<size_t>(n));
  }
  if (unsent_.size() > kMaxUnsentBytes) {
    return Error{ErrorCode::kResourceExhausted, "the peer does not read"};
  }
  return Ok{};
}

std::optional<std::string> FrameStream::take_frame() {
  if (received_.size() < sizeof(uint32_t)) return std::nullopt;
  const size_t length = frame_length(received_);
  if (received_.size() < sizeof(uint32_t) + length) return std::nullopt;
  std::string packet = received_.substr(sizeof(uint32_t), length);
  received_.erase(0, sizeof(uint32_t) + length);
  return packet;
}

Result<std::optional<std::string>> FrameStream::receive() {
  for (;;) {
    if (received_.size() >= sizeof(uint32_t) && frame_length(received_) > kMaxStreamFrameBytes) {
      return Error{ErrorCode::kInvalidArgument, "the peer sent a frame that is too large"};
    }
    if (auto frame = take_frame()) {
      if (!proof_) return frame;
      if (!proof_->send_key.empty()) {
        HP_TRY_ASSIGN(std::string packet, open(std::move(*frame)));
        return std::optional<std::string>(std::move(packet));
      }
      if (frame->size() != kNonceBytes) return not_proven("it does not begin as one who does");
      make_keys(*frame);
      continue;
    }
    char bytes[16U << 10];
    const ssize_t n = ::recv(fd_.get(), bytes, sizeof(bytes), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return std::optional<std::string>();
    if (n <= 0) {
      return Error{ErrorCode::kUnavailable,
                   n == 0 ? std::string("the peer closed the connection")
                          : std::string("the connection broke: ") + std::strerror(errno)};
    }
    received_.append(bytes, static_cast<size_t>(n));
  }
}

}  // namespace hpctl
