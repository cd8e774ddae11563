// SPDX-License-Identifier: Apache-2.0
// Figures of plans in words. Include from .cc files only.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <type_traits>

namespace hpctl {

// As printf does; at most 200 bytes.
template <typename... Values>
std::string plan_text(const char* format, Values... values) {
  static_assert(
      ((std::is_arithmetic_v<Values> || std::is_convertible_v<Values, const char*>)&&...));
  std::array<char, 200> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

inline double gibibytes(double bytes) { return bytes / (1024.0 * 1024 * 1024); }

}  // namespace hpctl
