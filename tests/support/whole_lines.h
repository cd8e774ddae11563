// SPDX-License-Identifier: Apache-2.0
// The lines of a file to which somebody appends meanwhile. A reader may see the beginning of the
// last one alone, also where it is written at once: a file grows page by page.
#pragma once

#include <string>
#include <vector>

namespace hpctl::test {

// Those of `text` that have an end, without it.
inline std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

}  // namespace hpctl::test
