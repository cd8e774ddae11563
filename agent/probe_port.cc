// SPDX-License-Identifier: Apache-2.0
#include "agent/probe_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

namespace hpctl::holder {
namespace {

constexpr int kBacklog = 128;

bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Result<ProbePort> ProbePort::open(bool everywhere) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(everywhere ? INADDR_ANY : INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  if (!socket.valid() || ::bind(socket.get(), name, size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0 || ::getsockname(socket.get(), name, &size) != 0) {
    return errno_error("cannot open the holder's probe port");
  }
  return ProbePort(std::move(socket), ntohs(address.sin_port));
}

bool ProbePort::accept_one() const {
  const UniqueFd probe(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return probe.valid() || !is_out_of_descriptors(errno);
}

}  // namespace hpctl::holder
