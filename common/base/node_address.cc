// SPDX-License-Identifier: Apache-2.0
#include "common/base/node_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "common/base/fd.h"

namespace hpctl {
namespace {

// TEST-NET-1: never a real host, so the default route is what leads there.
constexpr char kAnywhere[] = "192.0.2.1";
constexpr char kLoopback[] = "127.0.0.1";

std::string text_of(const sockaddr_in& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

// Connecting a datagram socket sends nothing: it asks the routing table. "" = no route.
std::string source_address(const std::string& ip) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t size = sizeof address;
  if (!fd.valid() || ::inet_pton(AF_INET, ip.c_str(), &address.sin_addr) != 1 ||
      ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "";
  }
  return text_of(address);
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

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

std::string node_address() {
  std::string address = source_address(kAnywhere);
  if (!address.empty()) return address;
  const auto addresses = own_addresses();
  return addresses.empty() ? kLoopback : addresses.front();
}

std::string node_address_towards(const std::string& peer) {
  const std::string address = source_address(peer.substr(0, peer.rfind(':')));
  return address.empty() ? node_address() : address;
}

}  // namespace hpctl
