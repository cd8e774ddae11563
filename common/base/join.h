// SPDX-License-Identifier: Apache-2.0
// "a, b, c"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hpctl {

inline std::string join(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

}  // namespace hpctl
