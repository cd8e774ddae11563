// SPDX-License-Identifier: Apache-2.0
#include "common/base/frame_stream.h"

#include <sys/socket.h>

#include <cstring>

namespace hpctl {
namespace {

uint32_t frame_length(const std::string& bytes) {
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length;
}

}  // namespace

Outcome FrameStream::send(std::string_view packet) {
  if (packet.size() > kMaxStreamFrameBytes) {
    return Error{ErrorCode::kInvalidArgument,
                 "a packet of " + std::to_string(packet.size()) + " bytes is too large"};
  }
  const auto length = static_cast<uint32_t>(packet.size());
  unsent_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  unsent_.append(packet);
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
    if (auto packet = take_frame()) return packet;
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
