// SPDX-License-Identifier: Apache-2.0
#include "common/net/unix_address.h"

#include <algorithm>
#include <cerrno>

#include "common/base/fd.h"

namespace hpctl {

std::optional<UnixAddress> UnixAddress::of(const std::string& path) {
  if (path.size() > kMaxPathBytes) return std::nullopt;
  UnixAddress made;
  made.address_.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), made.address_.sun_path);
  return made;
}

int unix_listener_trouble(const std::string& path) {
  const auto address = UnixAddress::of(path);
  if (!address) return 0;
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return errno;
  if (::connect(probe.get(), address->get(), address->size()) == 0) return 0;
  return errno == EAGAIN ? 0 : errno;  // EAGAIN: its queue is full
}

}  // namespace hpctl
