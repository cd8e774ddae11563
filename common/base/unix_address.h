// SPDX-License-Identifier: Apache-2.0
// Unix sockets at a path.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <optional>
#include <string>

namespace hpctl {

class UnixAddress {
 public:
  static constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;
  // nullopt: the path is longer than that.
  static std::optional<UnixAddress> of(const std::string& path);

  // For bind(), connect() and sendto().
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return sizeof address_; }

 private:
  UnixAddress() = default;

  sockaddr_un address_{};
};

// Why nobody would answer at `path`, an errno of socket() or connect(); 0 = somebody listens there,
// which may have too much to do, or the path is too long to be asked. Does not wait; whoever
// listens sees a connection that ends at once.
int unix_listener_trouble(const std::string& path);

}  // namespace hpctl
