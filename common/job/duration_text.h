// SPDX-License-Identifier: Apache-2.0
// Times in words.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace hpctl {

// "5 s", "1500 ms"
inline std::string duration_text(int64_t ms) {
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

// Rounded: "0.4 s", "12 s", "3 min 20 s", "2 h 05 min".
inline std::string format_duration(int64_t ms) {
  const double seconds = static_cast<double>(std::max<int64_t>(ms, 0)) / 1000;
  if (seconds < 9.95) {
    std::array<char, 16> text{};
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
    return text.data();
  }
  const int64_t whole = (std::max<int64_t>(ms, 0) + 500) / 1000;
  if (whole < 60) return std::to_string(whole) + " s";
  const auto two = [](int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  if (whole < 3600) return std::to_string(whole / 60) + " min " + two(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + two(whole % 3600 / 60) + " min";
}

}  // namespace hpctl
