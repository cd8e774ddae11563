// SPDX-License-Identifier: Apache-2.0
// HostPort: where somebody listens, as options, files and people say it:
//
//   n1:7300    192.0.2.1:80    [2001:db8::1]:80    127.0.0.1:0
//
// The host is a name, an address of IPv4, or one of IPv6, which brackets keep apart from the port.
// The text is cut here alone; whether there is such a host, nobody looks (socket_address.h has
// addresses in numbers, for sockets).
//
// And CallPeer: the other end of a call, as gRPC names it.
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

  // kInvalidArgument, which shows the text and what was expected, where there is no host or no port
  // from 0 to 65535, or an address of IPv6 has no brackets. What else a host may not contain is the
  // caller's to say.
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
