// SPDX-License-Identifier: Apache-2.0
#include "slurm-plugins/hpslurm/munge.h"

#include <algorithm>

#include "common/net/unix_address.h"
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
  const int trouble = unix_listener_trouble(path);
  if (trouble == 0) return Ok{};
  return Error{ErrorCode::kUnavailable, errno_error("munged at " + path, trouble).message};
}

}  // namespace hpctl::slurm
