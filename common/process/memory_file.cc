// SPDX-License-Identifier: Apache-2.0
#include "common/process/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/file.h"

namespace hpctl {

Result<UniqueFd> make_memory_file(const std::string& name, std::string_view text) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return errno_error("cannot make a file in memory (" + name + ")");
  HP_TRY(write_all(fd.get(), text, "a file in memory (" + name + ")"));
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) {
    return errno_error("cannot rewind a file in memory (" + name + ")");
  }
  return fd;
}

}  // namespace hpctl
