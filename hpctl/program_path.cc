// SPDX-License-Identifier: Apache-2.0
#include "hpctl/program_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/base/file.h"
#include "common/job/paths.h"

namespace hpctl {

bool is_program(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string find_program(const std::string& name, const std::string& path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    std::string candidate = path.substr(begin, end - begin) + "/" + name;
    if (is_program(candidate)) return candidate;
    begin = end + 1;
  }
  return "";
}

Result<std::string> sibling_program(const std::string& name) {
  HP_TRY_ASSIGN(const std::string directory, program_directory());
  const std::string path = directory + "/" + name;
  if (is_program(path)) return path;
  return Error{ErrorCode::kFailedPrecondition,
               "cannot run " + path + ": it is " +
                   (is_accessible(path) ? "not a program" : "missing") +
                   "; hpctl needs its sibling programs beside it, so install or build all of them"};
}

std::string inherited_path() {
  const char* path = std::getenv("PATH");
  return path == nullptr ? "" : path;
}

}  // namespace hpctl
