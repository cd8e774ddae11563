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

// The reason why no process would answer at `path`, an errno of socket() or connect(). 0 = a
// process listens there, which may be overloaded, or the path is too long to try. Does not wait;
// the listener sees a connection that ends at once.
int unix_listener_trouble(const std::string& path);

}  // namespace hpctl
