// SPDX-License-Identifier: Apache-2.0
// One HTTP request to a server of this machine.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace hpctl {

// By its Content-Length; an answer without one ends with the connection.
inline bool http_is_whole(const std::string& answer) {
  const size_t body = answer.find("\r\n\r\n");
  if (body == std::string::npos) return false;
  std::string head = answer.substr(0, body);
  for (char& c : head) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view kLength = "content-length:";
  const size_t length = head.find(kLength);
  return length != std::string::npos &&
         answer.size() >= body + 4 + std::stoul(head.substr(length + kLength.size()));
}

// Status line, headers and body of the answer to what is written as it is; "" when nobody answers
// within a minute.
inline std::string http_send(uint16_t port, const std::string& request) {
  constexpr timeval kPatience = {60, 0};
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return "";
  if (!write_all(fd.get(), request, "http").ok()) return "";
  std::string text;
  std::array<char, 4096> chunk;
  while (!http_is_whole(text)) {
    const ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;  // with a limit also where no signal has a handler
    if (n <= 0) break;
    text.append(chunk.data(), static_cast<size_t>(n));
  }
  return text;
}

// `headers`: further ones, each with its end of line.
inline std::string http_get(uint16_t port, const std::string& path,
                            const std::string& headers = "") {
  return http_send(port, "GET " + path + " HTTP/1.0\r\nHost: localhost\r\n" + headers + "\r\n");
}

}  // namespace hpctl
