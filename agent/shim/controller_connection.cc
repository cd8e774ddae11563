// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/controller_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/net/port.h"
#include "common/net/socket_address.h"
#include "common/net/tcp_connect.h"
#include "common/net/wait_for_fd.h"

namespace hpctl::shim {
namespace {

Result<UniqueFd> connect_to(const SocketAddress& address) {
  HP_TRY_ASSIGN(UniqueFd fd, connect_tcp(address, deadline_in(step::kConnectPatienceMs)));
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
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
    HP_TRY(wait_for_fd(stream.fd(), POLLIN, deadline_in(step::kAnswerPatienceMs)));
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
