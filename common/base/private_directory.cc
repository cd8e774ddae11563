// SPDX-License-Identifier: Apache-2.0
#include "common/base/private_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace hpctl {

std::string user_directory_of(uid_t uid) { return "/tmp/hpctl-" + std::to_string(uid); }
std::string user_directory() { return user_directory_of(::geteuid()); }

Outcome own_private_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error("cannot create " + path);
  }
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return errno_error("cannot stat " + path);
  if (!S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() || (st.st_mode & 077) != 0) {
    return Error{ErrorCode::kPermissionDenied,
                 path + " must be a directory of uid " + std::to_string(::geteuid()) +
                     " with mode 0700; it belongs to uid " + std::to_string(st.st_uid) +
                     ". Remove it or ask its owner to"};
  }
  return Ok{};
}

}  // namespace hpctl
