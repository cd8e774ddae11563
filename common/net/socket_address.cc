// SPDX-License-Identifier: Apache-2.0
#include "common/net/socket_address.h"

#include <arpa/inet.h>

#include <array>

#include "common/base/printable.h"
#include "common/net/host_port.h"

namespace hpctl {
namespace {

constexpr size_t kShownBytes = 80;  // of what is no address

Error no_address(const std::string& text) {
  return Error{ErrorCode::kInvalidArgument,
               "expected an address in numbers and a port, such as 192.0.2.1:80 or "
               "[2001:db8::1]:80; found \"" +
                   printable_line(text, kShownBytes) + "\""};
}

}  // namespace

Result<SocketAddress> SocketAddress::parse(const std::string& text) { return parse_from(text, 1); }
Result<SocketAddress> SocketAddress::parse_listener(const std::string& text) {
  return parse_from(text, 0);
}

Result<SocketAddress> SocketAddress::parse_from(const std::string& text, uint16_t least_port) {
  const auto parsed = HostPort::parse(text);
  if (!parsed.ok() || parsed->port < least_port) return no_address(text);
  auto address = of(parsed->bare_host(), parsed->port);
  if (!address.ok()) return no_address(text);
  return address;
}

Result<SocketAddress> SocketAddress::of(const std::string& ip, uint16_t port) {
  SocketAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage_);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage_);
  if (::inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size_ = sizeof *v4;
  } else if (::inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size_ = sizeof *v6;
  } else {
    return Error{ErrorCode::kInvalidArgument, "expected an address in numbers, found \"" +
                                                  printable_line(ip, kShownBytes) + "\""};
  }
  return address;
}

Result<SocketAddress> SocketAddress::of_socket(int fd) {
  SocketAddress address;
  address.size_ = sizeof address.storage_;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage_), &address.size_) != 0) {
    return errno_error("cannot read a socket's address");
  }
  return address;
}

std::string SocketAddress::ip() const {
  const void* const number =
      family() == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(family(), number, text.data(), text.size());
  return text.data();
}

uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
}

}  // namespace hpctl
