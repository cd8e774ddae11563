// SPDX-License-Identifier: Apache-2.0
#include "common/net/frame.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace hpctl {
namespace {

constexpr size_t kPrefix = 4;

Outcome send_all(int socket, std::string_view data, int64_t deadline_ms) {
  while (!data.empty()) {
    const ssize_t n = ::send(socket, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      data.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      HP_TRY(wait_for_fd(socket, POLLOUT, deadline_ms));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Error{ErrorCode::kNotFound, "the peer has closed the stream"};
    } else if (errno != EINTR) {
      return errno_error("cannot send a message");
    }
  }
  return Ok{};
}

// The whole is not allocated on the word of a length alone.
constexpr size_t kPieceBytes = size_t{1} << 20;

Outcome receive_all(int socket, char* data, size_t size, bool at_boundary, int64_t deadline_ms) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::recv(socket, data + done, size - done, MSG_DONTWAIT);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n == 0 || errno == ECONNRESET) {
      if (at_boundary && done == 0) {
        return Error{ErrorCode::kNotFound, "the peer has closed the stream"};
      }
      return Error{ErrorCode::kDataLoss, "the stream ends in the middle of a message"};
    } else if (errno == EAGAIN) {
      HP_TRY(wait_for_fd(socket, POLLIN, deadline_ms));
    } else if (errno != EINTR) {
      return errno_error("cannot receive a message");
    }
  }
  return Ok{};
}

}  // namespace

Outcome write_frame(int socket, std::string_view payload, int64_t deadline_ms) {
  if (payload.size() > kMaxFrameBytes) {
    return Error{ErrorCode::kInvalidArgument,
                 "a message of " + std::to_string(payload.size()) + " bytes is too long"};
  }
  std::array<char, kPrefix> prefix{};
  for (size_t i = 0; i < kPrefix; ++i) {
    prefix[i] = static_cast<char>((payload.size() >> (8 * i)) & 0xff);
  }
  HP_TRY(send_all(socket, {prefix.data(), prefix.size()}, deadline_ms));
  return send_all(socket, payload, deadline_ms);
}

Result<std::string> read_frame(int socket, int64_t deadline_ms) {
  std::array<char, kPrefix> prefix{};
  HP_TRY(receive_all(socket, prefix.data(), prefix.size(), true, deadline_ms));
  size_t size = 0;
  for (size_t i = 0; i < kPrefix; ++i) {
    size |= static_cast<size_t>(static_cast<unsigned char>(prefix[i])) << (8 * i);
  }
  if (size > kMaxFrameBytes) {
    return Error{ErrorCode::kDataLoss,
                 "this is no message: its length would be " + std::to_string(size) + " bytes"};
  }
  std::string payload;
  while (payload.size() < size) {
    const size_t done = payload.size();
    payload.resize(std::min(size, done + kPieceBytes));
    HP_TRY(receive_all(socket, payload.data() + done, payload.size() - done, false, deadline_ms));
  }
  return payload;
}

}  // namespace hpctl
