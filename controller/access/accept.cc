// SPDX-License-Identifier: Apache-2.0
#include "controller/access/accept.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/log.h"
#include "controller/access/tcp_access.h"

namespace hpctl {
namespace {

constexpr int kRetryAfterMs = 100;

void set_option(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

Result<UniqueFd> listen_on(const SocketAddress& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error("cannot create a socket");
  // Connections of a controller before us may linger; another that listens is not shared with.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Accepted sockets inherit these: written data leave at once, and a peer whose machine vanished
  // during a write is given up like one that answers no ping.
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kServerPingMs);
  if (::bind(fd.get(), address.get(), address.size()) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    Error error = errno_error("it is not an address of this node, or the port is in use");
    error.code = ErrorCode::kUnavailable;
    return error;
  }
  return fd;
}

UniqueFd accept_connection(int listener, int stop_event, sockaddr_storage& peer) {
  socklen_t size = sizeof peer;
  UniqueFd connection(
      ::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid() &&
      (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
    log_warning("cannot accept a connection: " + std::string(std::strerror(errno)) +
                "; raise the limit of open files (ulimit -n)");
    pollfd stop{stop_event, POLLIN, 0};
    ::poll(&stop, 1, kRetryAfterMs);
  }
  return connection;
}

}  // namespace hpctl
