// SPDX-License-Identifier: Apache-2.0
#include "controller/access/accept.h"

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/log.h"

namespace hpctl {
namespace {

constexpr int kRetryAfterMs = 100;

}  // namespace

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
