// SPDX-License-Identifier: Apache-2.0
#include "common/net/host_port.h"

#include <charconv>
#include <utility>

#include "common/base/printable.h"

namespace hpctl {
namespace {

constexpr size_t kShownHostPortBytes = 80;  // of what is none
constexpr std::string_view kEscapedOpen = "%5B";
constexpr std::string_view kEscapedClose = "%5D:";

bool has_brackets(std::string_view host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']';
}

std::string_view without_brackets(std::string_view host) {
  return has_brackets(host) ? host.substr(1, host.size() - 2) : host;
}

bool is_host(std::string_view host) {
  const std::string_view bare = without_brackets(host);
  const bool is_v6 = bare.find(':') != std::string_view::npos;
  return !bare.empty() && bare.find_first_of("[]") == std::string_view::npos &&
         is_v6 == has_brackets(host);
}

std::optional<uint16_t> port_of(std::string_view digits) {
  uint16_t port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, port);
  if (error != std::errc() || rest != end) return std::nullopt;
  return port;
}

}  // namespace

Result<HostPort> HostPort::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && is_host(text.substr(0, colon))) {
    if (const auto port = port_of(text.substr(colon + 1))) {
      return HostPort{std::string(text.substr(0, colon)), *port};
    }
  }
  return Error{ErrorCode::kInvalidArgument,
               "expected HOST:PORT, such as n1:7300, 192.0.2.1:80 or [2001:db8::1]:80; found \"" +
                   printable_line(text, kShownHostPortBytes) + "\""};
}

std::string HostPort::bare_host() const { return std::string(without_brackets(host)); }

std::optional<CallPeer> CallPeer::parse(std::string_view peer) {
  const size_t colon = peer.find(':');
  const std::string family(peer.substr(0, colon));
  if (colon == std::string_view::npos || (family != "ipv4" && family != "ipv6"))
    return std::nullopt;
  std::string end(peer.substr(colon + 1));
  if (end.starts_with(kEscapedOpen)) {
    end.replace(0, kEscapedOpen.size(), "[");
    const size_t at = end.rfind(kEscapedClose);
    if (at != std::string::npos) end.replace(at, kEscapedClose.size(), "]:");
  }
  auto parsed = HostPort::parse(end);
  if (!parsed.ok()) return std::nullopt;
  return CallPeer{family, std::move(*parsed)};
}

}  // namespace hpctl
