// SPDX-License-Identifier: Apache-2.0
// One HTTP request to a server of this machine.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace hpctl {

// Status line, headers and body; "" when nobody answers within a minute.
inline std::string http_get(uint16_t port, const std::string& path) {
  constexpr timeval kPatience = {60, 0};
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return "";
  const std::string request = "GET " + path + " HTTP/1.0\r\nHost: localhost\r\n\r\n";
  if (!write_all(fd.get(), request, "http").ok()) return "";
  std::string text;
  std::array<char, 4096> chunk;
  for (ssize_t n = 0; (n = ::read(fd.get(), chunk.data(), chunk.size())) > 0;) {
    text.append(chunk.data(), static_cast<size_t>(n));
  }
  return text;
}

}  // namespace hpctl
