// SPDX-License-Identifier: Apache-2.0
#include "hpctl/user_file.h"

#include <sys/stat.h>

#include "common/base/file.h"

namespace hpctl {

Outcome write_user_file(const std::string& path, std::string_view data) {
  struct stat st {};
  if (path.empty() || (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode))) {
    return Error{ErrorCode::kInvalidArgument,
                 "\"" + path + "\" is no file; name a new one, or one that is to be replaced"};
  }
  return write_file_atomic(path, data);
}

}  // namespace hpctl
