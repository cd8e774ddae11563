// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/damage.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/base/fd.h"

namespace hpctl {

Outcome damage_checkpoint(const std::string& step_dir) {
  const std::string path = step_dir + "/shard-00000.safetensors";
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return errno_error(path + " cannot be opened");
  const off_t middle = ::lseek(file.get(), 0, SEEK_END) / 2;
  char byte = 0;
  bool done = ::pread(file.get(), &byte, 1, middle) == 1;
  byte = static_cast<char>(~byte);
  // On the disk before another machine reads it.
  done = done && ::pwrite(file.get(), &byte, 1, middle) == 1 && ::fsync(file.get()) == 0;
  return done ? Outcome(Ok{}) : Outcome(errno_error(path + " cannot be damaged"));
}

}  // namespace hpctl
