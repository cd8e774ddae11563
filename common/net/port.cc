// SPDX-License-Identifier: Apache-2.0
#include "common/net/port.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <string>

#include "common/base/fd.h"
#include "common/net/socket_address.h"

namespace hpctl {
namespace {

// Below the usual ip_local_port_range (32768 up), above the ports of a HyperPod node's own
// services (all under 10000) and of torchrun's customary 29500.
constexpr uint16_t kFirst = 20'000;
constexpr uint16_t kLast = 29'000;
constexpr int kAttempts = 64;

// Both families where the machine has IPv6, as PyTorch's store listens; else IPv4.
UniqueFd open_socket(bool& is_v6) {
  UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  is_v6 = fd.valid();
  if (!is_v6) fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd;
}

bool bind_any(int fd, bool is_v6, uint16_t port) {
  const int off = 0;
  if (is_v6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const auto address = SocketAddress::of(is_v6 ? "::" : "0.0.0.0", port).value();
  return ::bind(fd, address.get(), address.size()) == 0;
}

}  // namespace

Outcome check_port_free(uint16_t port) {
  bool is_v6 = false;
  const UniqueFd fd = open_socket(is_v6);
  if (!fd.valid()) return errno_error("cannot open a socket to try port " + std::to_string(port));
  const int on = 1;  // as listeners do: connections that linger in TIME_WAIT do not count
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind_any(fd.get(), is_v6, port)) return Ok{};
  Error error = errno_error("port " + std::to_string(port) + " is not free");
  error.code = ErrorCode::kUnavailable;
  return error;
}

Result<uint16_t> choose_free_port() {
  Error last;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint16_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) {
      return errno_error("cannot get random bytes");
    }
    const auto port = static_cast<uint16_t>(kFirst + random % (kLast - kFirst));
    const Outcome free = check_port_free(port);
    if (free.ok()) return port;
    last = free.error();
  }
  return Error{ErrorCode::kResourceExhausted, "no free port found between " +
                                                  std::to_string(kFirst) + " and " +
                                                  std::to_string(kLast) + ": " + last.message};
}

}  // namespace hpctl
