// SPDX-License-Identifier: Apache-2.0
#include "common/net/tcp_connect.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "common/net/wait_for_fd.h"

namespace hpctl {

TcpAttempt begin_tcp(const SocketAddress& peer) {
  UniqueFd fd(::socket(peer.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool is_made = fd.valid() && ::connect(fd.get(), peer.get(), peer.size()) == 0;
  const int error = is_made ? 0 : errno;
  return {std::move(fd), error};
}

int tcp_answer_on(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

Result<UniqueFd> connect_tcp(const SocketAddress& peer, int64_t deadline_ms) {
  TcpAttempt attempt = begin_tcp(peer);
  if (!attempt.socket.valid()) return errno_error("cannot make a socket", attempt.error);
  if (attempt.error == EINPROGRESS) {
    HP_TRY(wait_for_fd(attempt.socket.get(), POLLOUT, deadline_ms));
    attempt.error = tcp_answer_on(attempt.socket.get());
  }
  if (attempt.error != 0) return errno_error("cannot connect", attempt.error);
  return std::move(attempt.socket);
}

}  // namespace hpctl
