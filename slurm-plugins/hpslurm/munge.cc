// SPDX-License-Identifier: Apache-2.0
#include "slurm-plugins/hpslurm/munge.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>

#include "common/base/fd.h"
#include "slurm-plugins/hpslurm/names.h"
#include "slurm-plugins/hpslurm/slurm_compat.h"

namespace hpctl::slurm {
namespace {

constexpr const char* kDefaultSocket = "/run/munge/munge.socket.2";

// AuthInfo=socket=PATH,ttl=…
std::string socket_path() {
  const std::string info = text(slurm_conf.authinfo);
  const std::string key = "socket=";
  const size_t begin = info.find(key);
  if (begin == std::string::npos) return kDefaultSocket;
  const size_t end = std::min(info.find(',', begin), info.size());
  return info.substr(begin + key.size(), end - begin - key.size());
}

}  // namespace

Outcome check_munged() {
  if (&slurm_conf == nullptr || text(slurm_conf.authtype) != "auth/munge") return Ok{};
  const std::string path = socket_path();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Ok{};
  std::copy(path.begin(), path.end(), address.sun_path);
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return errno_error("cannot look for munged");
  // EAGAIN: it lives, and its queue is full.
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN) {
    return Ok{};
  }
  return Error{ErrorCode::kUnavailable, errno_error("munged at " + path).message};
}

}  // namespace hpctl::slurm
