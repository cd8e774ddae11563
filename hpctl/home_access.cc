// SPDX-License-Identifier: Apache-2.0
#include "hpctl/home_access.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace hpctl {
namespace {

Error not_ours(const HomePaths& paths, const std::string& owner) {
  return Error{ErrorCode::kPermissionDenied,
               paths.home() + " belongs to " + owner + ", you are uid " +
                   std::to_string(::geteuid()) +
                   "; a job belongs to its user: set HPCTL_HOME to a directory of your own"};
}

}  // namespace

Outcome check_home_is_ours(const HomePaths& paths) {
  struct stat st {};
  if (::stat(paths.home().c_str(), &st) == 0) {
    if (st.st_uid == ::geteuid()) return Ok{};
    return not_ours(paths, "uid " + std::to_string(st.st_uid));
  }
  if (errno == EACCES) return not_ours(paths, "somebody else");
  return Ok{};
}

Outcome check_home_is_readable(const HomePaths& paths) {
  for (const std::string& directory : {paths.home(), paths.jobs()}) {
    if (::access(directory.c_str(), R_OK | X_OK) != 0 && errno == EACCES) {
      return check_home_is_ours(paths);
    }
  }
  return Ok{};
}

}  // namespace hpctl
