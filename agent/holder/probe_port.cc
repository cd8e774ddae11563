// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/probe_port.h"

#include <sys/socket.h>

#include <cerrno>

#include "common/net/socket_address.h"

namespace hpctl::holder {
namespace {

constexpr int kBacklog = 128;

bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Result<ProbePort> ProbePort::open(bool everywhere) {
  HP_TRY_ASSIGN(const auto any_port, SocketAddress::of(everywhere ? "0.0.0.0" : "127.0.0.1", 0));
  UniqueFd socket(::socket(any_port.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::bind(socket.get(), any_port.get(), any_port.size()) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return errno_error("cannot open the holder's probe port");
  }
  HP_TRY_ASSIGN(const auto bound, SocketAddress::of_socket(socket.get()));
  return ProbePort(std::move(socket), bound.port());
}

bool ProbePort::accept_one() const {
  const UniqueFd probe(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return probe.valid() || !is_out_of_descriptors(errno);
}

}  // namespace hpctl::holder
