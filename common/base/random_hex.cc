// SPDX-License-Identifier: Apache-2.0
#include "common/base/random_hex.h"

#include <sys/random.h>

#include <charconv>

namespace hpctl {

std::string to_hex(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::optional<std::string> from_hex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    unsigned value = 0;
    const auto parsed = std::from_chars(digits.data() + i, digits.data() + i + 2, value, 16);
    if (parsed.ec != std::errc{} || parsed.ptr != digits.data() + i + 2) return std::nullopt;
    bytes += static_cast<char>(value);
  }
  return bytes;
}

Result<std::string> random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  if (::getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) {
    return errno_error("cannot get random bytes");
  }
  return to_hex(raw);
}

}  // namespace hpctl
