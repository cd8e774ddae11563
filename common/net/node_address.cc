// SPDX-License-Identifier: Apache-2.0
#include "common/net/node_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "common/base/fd.h"
#include "common/net/socket_address.h"

namespace hpctl {
namespace {

// TEST-NET-1: never a real host, so the default route is what leads there.
constexpr char kAnywhere[] = "192.0.2.1:9";
constexpr char kLoopback[] = "127.0.0.1";

std::string text_of(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

// Connecting a datagram socket sends nothing: it asks the routing table. "" = no route.
std::string source_address(const SocketAddress& peer) {
  const UniqueFd fd(::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), peer.get(), peer.size()) != 0) return "";
  const auto own = SocketAddress::of_socket(fd.get());
  return own.ok() ? own->ip() : "";
}

}  // namespace

std::vector<std::string> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool usable = entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET &&
                        (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (usable) addresses.push_back(text_of(*reinterpret_cast<sockaddr_in*>(entry->ifa_addr)));
  }
  return addresses;
}

std::string interface_of(const std::string& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (text_of(*reinterpret_cast<sockaddr_in*>(entry->ifa_addr)) == address) {
      return entry->ifa_name;
    }
  }
  return "";
}

std::string node_address() {
  std::string address = source_address(SocketAddress::parse(kAnywhere).value());
  if (!address.empty()) return address;
  const auto addresses = own_addresses();
  return addresses.empty() ? kLoopback : addresses.front();
}

std::string node_address_towards(const std::string& peer) {
  const auto there = SocketAddress::parse(peer);
  const std::string address = there.ok() ? source_address(*there) : "";
  return address.empty() ? node_address() : address;
}

}  // namespace hpctl
