// SPDX-License-Identifier: Apache-2.0
#include "common/job/fenced_file.h"

#include <unistd.h>

#include <cerrno>

#include "common/base/file.h"
#include "common/base/temporary_file.h"

namespace hpctl {

Result<bool> replace_fenced(const std::string& path, std::string_view data, const IsOurs& is_ours) {
  HP_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(path));
  HP_TRY(file.append(data));
  HP_TRY(file.sync());
  if (!is_ours()) return false;
  const Outcome renamed = file.rename_into_place();
  if (renamed.ok()) return true;
  if (renamed.error().code == ErrorCode::kNotFound) return false;  // it was removed
  return renamed.error();
}

Outcome remove_unfinished(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = path.substr(0, slash);
  HP_TRY_ASSIGN(const auto names, list_directory(directory));
  for (const std::string& name : names) {
    if (!name.starts_with(path.substr(slash + 1) + kTemporaryInfix)) continue;
    const std::string unfinished = directory + "/" + name;
    if (::unlink(unfinished.c_str()) != 0 && errno != ENOENT) {
      return errno_error("cannot remove " + unfinished);
    }
  }
  return Ok{};
}

}  // namespace hpctl
