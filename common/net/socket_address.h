// SPDX-License-Identifier: Apache-2.0
// SocketAddress: an address of IPv4 or IPv6 and a port, in numbers; no name is ever looked up. Only
// this file parses "IP:PORT".
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/base/result.h"

namespace hpctl {

class SocketAddress {
 public:
  // "192.0.2.1:80", "[2001:db8::1]:80"; port 1 to 65535. kInvalidArgument for anything else.
  static Result<SocketAddress> parse(const std::string& text);
  // Likewise, to listen on; port 0 = any free one.
  static Result<SocketAddress> parse_listener(const std::string& text);
  // `ip` without brackets; port 0 = any.
  static Result<SocketAddress> of(const std::string& ip, uint16_t port);
  // This end of a socket.
  static Result<SocketAddress> of_socket(int fd);

  // For bind() and connect().
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }

  std::string ip() const;  // without brackets
  uint16_t port() const;

 private:
  SocketAddress() = default;
  static Result<SocketAddress> parse_from(const std::string& text, uint16_t least_port);

  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

}  // namespace hpctl
