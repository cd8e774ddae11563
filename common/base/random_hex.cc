// SPDX-License-Identifier: Apache-2.0
#include "common/base/random_hex.h"

#include <sys/random.h>

#include <string_view>

namespace hpctl {

Result<std::string> random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  if (::getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) {
    return errno_error("cannot get random bytes");
  }
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace hpctl
