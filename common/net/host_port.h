// SPDX-License-Identifier: Apache-2.0
// HostPort: an address to listen at or to connect to, as options, files and people write it:
//
//   n1:7300    192.0.2.1:80    [2001:db8::1]:80    127.0.0.1:0
//
// The host is a name, an address of IPv4, or one of IPv6, which brackets keep apart from the port.
// Only this file splits the text. It does not check that the host exists (socket_address.h has
// numeric addresses, for sockets).
//
// CallPeer is the other end of a call, as gRPC names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace hpctl {

struct HostPort {
  std::string host;   // as it stands before a port: IPv6 in its brackets
  uint16_t port = 0;  // 0, to listen on: any free one

  // kInvalidArgument if there is no host or no port from 0 to 65535, or if an address of IPv6 has
  // no brackets; the error shows the text and the expected form. The caller checks all other limits
  // of a host.
  static Result<HostPort> parse(std::string_view text);

  std::string text() const { return with_port(port); }
  std::string with_port(uint16_t other) const { return host + ":" + std::to_string(other); }
  // As the resolver and certificates have it: IPv6 without brackets.
  std::string bare_host() const;
};

struct CallPeer {
  std::string family;  // "ipv4" or "ipv6"
  HostPort end;

  // "ipv4:192.0.2.1:4711", "ipv6:[2001:db8::1]:4711"; newer releases of gRPC write these brackets
  // %5B and %5D. nullopt: another kind of peer, such as a local socket.
  static std::optional<CallPeer> parse(std::string_view peer);

  // The machine, without the port, which differs with each connection: "ipv4:192.0.2.1".
  std::string origin() const { return family + ":" + end.host; }
};

}  // namespace hpctl
