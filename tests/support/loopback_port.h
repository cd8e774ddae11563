// SPDX-License-Identifier: Apache-2.0
// A port of the loopback that nobody else is given as long as this lives: bound, which keeps it
// from those who ask for any port, and not listening, which lets a server of this test have it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/base/fd.h"

namespace hpctl::test {

class LoopbackPort {
 public:
  LoopbackPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    address_ = "127.0.0.1:" + std::to_string(port_);
  }
  int fd() const { return fd_.get(); }
  const std::string& address() const { return address_; }
  uint16_t port() const { return port_; }

 private:
  const UniqueFd fd_;
  uint16_t port_ = 0;
  std::string address_;
};

}  // namespace hpctl::test
