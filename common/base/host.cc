// SPDX-License-Identifier: Apache-2.0
#include "common/base/host.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "common/base/printable.h"

namespace hpctl {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return printable_line(name.data(), name.size());  // the kernel takes any bytes
}

std::string system_path(const std::string& path) {
  const char* root = std::getenv("HPCTL_SYSROOT");
  return root == nullptr ? path : root + path;
}

}  // namespace hpctl
