// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/controller_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "common/base/clock.h"
#include "common/base/port.h"
#include "common/base/socket_address.h"

namespace hpctl::shim {
namespace {

Outcome wait_for(int fd, short events, int64_t patience_ms, const std::string& what) {
  const SystemClock clock;
  const int64_t deadline_ms = clock.monotonic_ms() + patience_ms;
  for (;;) {
    pollfd wait{fd, events, 0};
    const int64_t left = std::max<int64_t>(0, deadline_ms - clock.monotonic_ms());
    const int ready = ::poll(&wait, 1, static_cast<int>(left));
    if (ready > 0) return Ok{};
    if (ready < 0 && errno == EINTR) continue;
    return Error{ErrorCode::kUnavailable, what + " within " + std::to_string(patience_ms) + " ms"};
  }
}

Result<UniqueFd> connect_to(const SocketAddress& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_error("cannot create a socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  if (::connect(fd.get(), address.get(), address.size()) != 0 && errno != EINPROGRESS) {
    return errno_error("cannot connect");
  }
  HP_TRY(wait_for(fd.get(), POLLOUT, step::kConnectPatienceMs, "no connection"));
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return errno_error("cannot connect", error);
  return fd;
}

}  // namespace

Result<FrameStream> join_step(const TaskSettings& settings) {
  HP_TRY_ASSIGN(const SocketAddress address, SocketAddress::of(settings.host, settings.port));
  HP_TRY_ASSIGN(UniqueFd fd, connect_to(address));
  step::Hello hello;
  hello.task = settings.rank;
  hello.tasks = settings.tasks;
  hello.node = settings.node;
  hello.pid = static_cast<uint64_t>(::getpid());
  // This end's: how the other nodes reach this one, since the controller is reached that way.
  HP_TRY_ASSIGN(const SocketAddress own, SocketAddress::of_socket(fd.get()));
  hello.address = own.ip();
  if (settings.rank == 0) hello.free_port = find_free_port();
  FrameStream stream(std::move(fd));
  HP_TRY(stream.authenticate(settings.token, FrameStream::Side::kDialled));
  HP_TRY(stream.send(step::encode(step::ToController(hello))));
  for (;;) {
    HP_TRY(wait_for(stream.fd(), POLLIN, step::kAnswerPatienceMs, "no answer"));
    HP_TRY_ASSIGN(const auto packet, stream.receive());
    if (!packet) continue;
    HP_TRY_ASSIGN(const step::ToShim message, step::decode_to_shim(*packet));
    if (std::holds_alternative<step::Welcome>(message)) return stream;
    return Error{ErrorCode::kInternal, "an answer other than Welcome"};
  }
}

uint16_t find_free_port() {
  const auto port = choose_free_port();
  return port.ok() ? *port : 0;
}

}  // namespace hpctl::shim
