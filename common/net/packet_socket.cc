// SPDX-License-Identifier: Apache-2.0
#include "common/net/packet_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>

namespace hpctl {
namespace {

// True when sent, false when the peer's queue is full.
Result<bool> send_packet(int fd, std::string_view bytes, int descriptor) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  for (;;) {
    if (::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    Error error = errno_error("cannot send to the peer process");
    if (errno == EPIPE || errno == ECONNRESET) error.code = ErrorCode::kUnavailable;
    return error;
  }
}

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> PacketSocket::make_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return errno_error("cannot create a socket pair");
  }
  return std::pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

Outcome PacketSocket::send_now(std::string_view bytes) {
  for (;;) {
    HP_TRY_ASSIGN(const bool sent, send_packet(fd_.get(), bytes, -1));
    if (sent) return Ok{};
    pollfd writable{fd_.get(), POLLOUT, 0};
    ::poll(&writable, 1, -1);
  }
}

Result<bool> PacketSocket::try_send(std::string_view bytes) {
  return send_packet(fd_.get(), bytes, -1);
}

Outcome PacketSocket::send_or_queue(std::string bytes, int descriptor) {
  if (queue_.empty()) {
    HP_TRY_ASSIGN(const bool sent, send_packet(fd_.get(), bytes, descriptor));
    if (sent) return Ok{};
  }
  Packet packet{std::move(bytes), UniqueFd()};
  if (descriptor >= 0) {
    packet.descriptor.reset(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!packet.descriptor.valid()) return errno_error("cannot duplicate a descriptor");
  }
  queue_.push_back(std::move(packet));
  return Ok{};
}

Outcome PacketSocket::flush() {
  while (!queue_.empty()) {
    const Packet& packet = queue_.front();
    HP_TRY_ASSIGN(const bool sent, send_packet(fd_.get(), packet.bytes, packet.descriptor.get()));
    if (!sent) break;
    queue_.pop_front();
  }
  return Ok{};
}

Result<std::optional<Packet>> PacketSocket::receive() {
  Packet packet;
  packet.bytes.resize(kMaxPacketBytes);
  iovec part{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t n = 0;
  // For a peer that ended without reading everything, the kernel first returns ECONNRESET, once,
  // and then the data that the peer had sent.
  do {
    n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::optional<Packet>();
  if (n < 0) return errno_error("cannot read from the peer process");
  if (n == 0) return Error{ErrorCode::kUnavailable, "the peer process is gone"};
  packet.bytes.resize(static_cast<size_t>(n));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    packet.descriptor.reset(descriptor);
  }
  return std::optional<Packet>(std::move(packet));
}

}  // namespace hpctl
