// SPDX-License-Identifier: Apache-2.0
#include "controller/access/tcp_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "common/net/socket_address.h"
#include "controller/access/accept.h"

namespace hpctl {
namespace {

bool has_hung_up(int fd) {
  pollfd look{fd, POLLRDHUP, 0};
  return ::poll(&look, 1, 0) == 1;
}

}  // namespace

Result<std::unique_ptr<TcpListener>> TcpListener::open(const std::string& address,
                                                       Handshakes& handshakes) {
  HP_TRY_ASSIGN(const auto wanted, SocketAddress::parse_listener(address));
  HP_TRY_ASSIGN(UniqueFd socket, listen_on(wanted));
  HP_TRY_ASSIGN(const auto bound, SocketAddress::of_socket(socket.get()));
  UniqueFd stop_event(::eventfd(0, EFD_CLOEXEC));
  if (!stop_event.valid()) return errno_error("cannot create an eventfd");
  return std::unique_ptr<TcpListener>(
      new TcpListener(std::move(socket), std::move(stop_event), bound.port(), handshakes));
}

TcpListener::TcpListener(UniqueFd socket, UniqueFd stop_event, uint16_t port,
                         Handshakes& handshakes)
    : socket_(std::move(socket)),
      stop_event_(std::move(stop_event)),
      port_(port),
      handshakes_(handshakes) {}

TcpListener::~TcpListener() { stop(); }

void TcpListener::start(Accepted accepted) {
  accepted_ = std::move(accepted);
  thread_ = std::thread([this] { run(); });
}

void TcpListener::stop() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_event_.get(), 1);
  thread_.join();
}

void TcpListener::accept_one() {
  sockaddr_storage peer{};
  UniqueFd connection = accept_connection(socket_.get(), stop_event_.get(), peer);
  if (!connection.valid()) return;
  if (has_hung_up(connection.get())) return;
  const in_port_t port = peer.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(peer).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(peer).sin_port;
  handshakes_.begin(ntohs(port), Handshakes::Clock::now());
  accepted_(std::move(connection));
}

void TcpListener::run() {
  for (;;) {
    const int wait_ms = static_cast<int>(handshakes_.until_room(Handshakes::Clock::now()).count());
    const bool has_room = wait_ms == 0;
    std::array<pollfd, 3> ready{{{stop_event_.get(), POLLIN, 0},
                                 {has_room ? socket_.get() : -1, POLLIN, 0},  // -1 is left out
                                 {has_room ? -1 : handshakes_.room_fd(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), has_room ? -1 : wait_ms) < 0 && errno != EINTR) return;
    if (ready[0].revents != 0) return;
    if (ready[1].revents != 0) accept_one();
    if (ready[2].revents != 0) {
      eventfd_t seen = 0;
      ::eventfd_read(handshakes_.room_fd(), &seen);
    }
  }
}

}  // namespace hpctl
